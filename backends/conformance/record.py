"""What a run found as JSON: enough to judge it later, and to go on where it stopped.

It refuses to name the machine beyond its kind.
"""

import json
import os
import platform
from collections import Counter
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
        num_chunks: chunks 0 … num_chunks - 1 are in the tally.
        tally: the counts.
        machines: the kinds of machine that took part.
    """

    backend: str
    device: str
    num_chunks: int
    tally: Tally
    machines: tuple[str, ...] = ()

    def including(self, found: Tally) -> "Record":
        """One more chunk, which this machine ran."""
        machines = dict.fromkeys((*self.machines, _machine(self.device)))
        return evolve(
            self, num_chunks=self.num_chunks + 1, tally=self.tally + found, machines=(*machines,)
        )

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
            "num_chunks": self.num_chunks,
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
            of_file = (values["backend"], values["device"], values["num_chunks"])
            return cls(*of_file, Tally(**counts), tuple(values["machines"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{path}: expected the record of a conformance run, got {error!r}"
            ) from error


def _machine(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {os.cpu_count()} CPU cores"
