"""What a run found as JSON: enough to judge it later, and to go on where it stopped.

It refuses to name the machine beyond its kind.
"""

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import evolve, frozen

from ...core.errors import InvalidInputError
from .findings import Difference
from .table import markdown
from .tally import Tally


@frozen
class Record:
    """A run's outcome.

    Attributes:
        backend: its name.
        device: where it ran.
        chunks: the numbers of those in the tally.
        tally: the counts.
        machines: the kinds of machine that took part.
    """

    backend: str
    device: str
    chunks: tuple[int, ...]
    tally: Tally
    machines: tuple[str, ...] = ()

    def missing(self, first: int, count: int) -> list[int]:
        """So many chunks from a number on that are not in it yet."""
        candidates = range(first, first + count + len(self.chunks))
        return [number for number in candidates if number not in self.chunks][:count]

    def including(self, number: int, found: Tally) -> "Record":
        """One more chunk, which this machine ran."""
        machines = dict.fromkeys((*self.machines, _machine(self.device)))
        chunks = sorted((*self.chunks, number))
        return evolve(self, chunks=(*chunks,), tally=self.tally + found, machines=(*machines,))

    def write(self, path: Path) -> None:
        """Write JSON, with the date and the versions that matter, and beside it a table as .md."""
        about = {
            "backend": self.backend,
            "device": self.device,
            "date": datetime.now(UTC).date().isoformat(),
            "machines": self.machines,
            "versions": {
                "acceptor": version("acceptor"),
                "hypothesis": version("hypothesis"),
                "numpy": version("numpy"),
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
            "chunks": _as_ranges(self.chunks),
            "near_tie_rate": self.tally.near_tie_rate,
            "is_conformant": self.tally.is_conformant,
        }
        text = json.dumps({**about, "tally": attrs.asdict(self.tally)}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")
        where = f"Backend `{self.backend}` on {', '.join(self.machines)}, {about['date']}:"
        path.with_suffix(".md").write_text(f"{where}\n\n{markdown(self.tally)}", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """What `write` wrote.

        Raises:
            InvalidInputError: the file is missing, or something else.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            counts: dict[str, Any] = values["tally"]
            counts["near_ties"] = Counter(counts["near_ties"])
            counts["failures"] = [
                (name, Difference(**difference)) for name, difference in counts["failures"]
            ]
            chunks = tuple(n for first, last in values["chunks"] for n in range(first, last + 1))
            of_file = (values["backend"], values["device"], chunks)
            return cls(*of_file, Tally(**counts), tuple(values["machines"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{path}: expected the record of a conformance run, got {error!r}"
            ) from error


def _as_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return list(zip(starts, ends, strict=True))


def _machine(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {os.cpu_count()} CPU cores"
