"""What a run found as JSON: enough to judge it later, and to go on where it stopped.

It refuses to name the machine beyond its kind.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import attrs
import torch
from attrs import evolve, frozen

from ...core.errors import InvalidInputError
from .beside import Beside
from .table import markdown
from .tally import Tally


@frozen
class Share:
    """What was run in one place.

    Attributes:
        machine: its kind.
        versions: of what decides which batches a chunk has, and what is computed.
        chunks: their numbers, in order.
    """

    machine: str
    versions: Mapping[str, str]
    chunks: tuple[int, ...] = ()

    @classmethod
    def here(cls, device: str) -> "Share":
        """Nothing yet, on this machine."""
        return cls(_machine(device), _versions())

    def including(self, number: int) -> "Share":
        """One more chunk."""
        return evolve(self, chunks=(*sorted((*self.chunks, number)),))


@frozen
class Record:
    """A run's outcome.

    Attributes:
        backend: its name.
        device: where it ran.
        shares: which chunks are in the tally, by where they were run.
        tally: the counts.
        beside: those of a second backend on the same batches, if there was one.
    """

    backend: str
    device: str
    shares: tuple[Share, ...]
    tally: Tally
    beside: Beside | None = None

    @property
    def is_conformant(self) -> bool:
        """All backends conform, and agree with each other."""
        return self.tally.is_conformant and (self.beside is None or self.beside.is_conformant)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The numbers of all chunks."""
        return (*sorted(number for share in self.shares for number in share.chunks),)

    @property
    def machines(self) -> tuple[str, ...]:
        """The kinds of machine that took part."""
        return (*dict.fromkeys(share.machine for share in self.shares),)

    def missing(self, first: int, count: int) -> list[int]:
        """So many chunks from a number on that are not in it yet."""
        candidates = range(first, first + count + len(self.chunks))
        return [number for number in candidates if number not in self.chunks][:count]

    def including(self, number: int, found: Tally, *beside: Tally) -> "Record":
        """One more chunk, which this machine ran.

        Args:
            number: the chunk's.
            found: the counts.
            beside: the second backend's, and those between the two, see `Beside`.
        """
        here = Share.here(self.device)
        others = [share for share in self.shares if evolve(share, chunks=()) != here]
        known = [share for share in self.shares if share not in others] or [here]
        shares = (*others, *(share.including(number) for share in known))
        together = self.beside.including(*beside) if self.beside is not None else None
        return evolve(self, shares=shares, tally=self.tally + found, beside=together)

    def write(self, path: Path) -> None:
        """Write JSON, with the date and the versions that matter, and beside it a table as .md."""
        shares = [attrs.asdict(share) for share in self.shares]
        about = {
            "backend": self.backend,
            "device": self.device,
            "date": datetime.now(UTC).date().isoformat(),
            "machines": self.machines,
            "shares": [share | {"chunks": _as_ranges(share["chunks"])} for share in shares],
            "near_tie_rate": self.tally.near_tie_rate,
            "is_conformant": self.is_conformant,
            "tally": attrs.asdict(self.tally),
        }
        together = {} if self.beside is None else {"beside": self.beside.to_values()}
        text = json.dumps({**about, **together}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")
        where = f"Backend `{self.backend}` on {', '.join(self.machines)}, {about['date']}:"
        page = f"{where}\n\n{markdown(self.tally, self.backend, self.beside)}"
        path.with_suffix(".md").write_text(page, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """What `write` wrote.

        Raises:
            InvalidInputError: the file is missing, or something else.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            shares = tuple(
                Share(**share | {"chunks": _numbers(share["chunks"])}) for share in values["shares"]
            )
            tally, beside = Tally.from_values(values["tally"]), values.get("beside")
            return cls(
                values["backend"], values["device"], shares, tally, Beside.from_values(beside)
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{path}: expected the record of a conformance run, got {error!r}"
            ) from error


def _as_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return list(zip(starts, ends, strict=True))


def _numbers(ranges: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """What `_as_ranges` was given."""
    return tuple(number for first, last in ranges for number in range(first, last + 1))


def _versions() -> dict[str, str]:
    return {
        "acceptor": version("acceptor"),
        "hypothesis": version("hypothesis"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _machine(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {os.cpu_count()} CPU cores"
