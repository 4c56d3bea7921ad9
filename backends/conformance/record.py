"""What a run found as JSON: enough to judge it later, and to go on where it stopped."""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from attrs import evolve, field, frozen

from ...core.errors import InvalidInputError
from .findings import MOST_NEAR_TIES, Tally

MOST_FAILURES = 5
MOST_EXCUSES = 20


def _versions() -> dict[str, str]:
    names = ("acceptor", "numpy", "torch")
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        # As where a checkout lies on the path.
        return "not installed"


@frozen
class Record:
    """A run's outcome.

    Attributes:
        backends: one name or two.
        device: where they ran.
        tallies: of one backend; of two, each one's and that of what lies between the two.
        chunks: the numbers of those that are in the tallies.
        machine: its kind.
        versions: of what decides which batches a chunk has, and what is computed.
    """

    backends: tuple[str, ...]
    device: str
    tallies: tuple[Tally, ...]
    chunks: tuple[int, ...] = ()
    machine: str = field()
    versions: Mapping[str, str] = field(factory=_versions)

    @machine.default
    def _here(self) -> str:
        if torch.device(self.device).type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"{platform.machine()}, {os.cpu_count()} CPU cores"

    @classmethod
    def empty(cls, backends: Sequence[str], device: str) -> "Record":
        """Nothing yet."""
        return cls(tuple(backends), device, tuple(Tally() for _ in range(2 * len(backends) - 1)))

    @property
    def names(self) -> tuple[str, ...]:
        """What each tally is of."""
        return (*self.backends, *([" and ".join(self.backends)] if len(self.backends) > 1 else []))

    @property
    def compared(self) -> Tally:
        """The tally that tells how many batches all backends had."""
        return self.tallies[-1]

    @property
    def is_conformant(self) -> bool:
        """All backends conform, and nothing between them is unexplained.

        How rare near-ties must be is asked of each backend, and not of the two together.
        """
        own = self.tallies[: len(self.backends)]
        some = bool(self.compared.num_batches) and not self.compared.failures
        return some and all(tally.is_conformant for tally in own)

    def missing(self, first: int, count: int) -> list[int]:
        """So many chunks from a number on that are not in it yet."""
        candidates = range(first, first + count + len(self.chunks))
        return [number for number in candidates if number not in self.chunks][:count]

    def including(self, number: int | None, found: Sequence[Tally]) -> "Record":
        """One more chunk, or something without a number."""
        both = tuple(Tally() for _ in self.tallies)
        for total, *parts in zip(both, self.tallies, found, strict=True):
            for part in parts:
                total.include(part)
        chunks = self.chunks if number is None else (*sorted((*self.chunks, number)),)
        return evolve(self, tallies=both, chunks=chunks)

    @property
    def page(self) -> str:
        """The record for people."""
        return f"On {self.machine}:\n\n{table(self.names, self.tallies)}"

    def write(self, path: Path) -> None:
        """Write JSON, and beside it the page as .md."""
        values = {
            "backends": self.backends,
            "device": self.device,
            "date": datetime.now(UTC).date().isoformat(),
            "machine": self.machine,
            "versions": self.versions,
            "chunks": _as_ranges(self.chunks),
            "is_conformant": self.is_conformant,
            "tallies": [tally.to_values() for tally in self.tallies],
        }
        path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(self.page, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """What `write` wrote.

        Raises:
            InvalidInputError: the file is missing, or something else.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                backends=tuple(values["backends"]),
                device=values["device"],
                tallies=tuple(map(Tally.from_values, values["tallies"])),
                chunks=_numbers(values["chunks"]),
                machine=values["machine"],
                versions=values["versions"],
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
    return tuple(number for first, last in ranges for number in range(first, last + 1))


def table(names: Sequence[str], tallies: Sequence[Tally]) -> str:
    """Counts and near-ties by decision in Markdown, the tallies side by side."""
    counts = [dict(_counts(tally)) for tally in tallies]
    kinds = dict.fromkeys(kind for each in counts for kind in each)
    rows = [("", *(f"`{name}`" for name in names)), ["---"] * (1 + len(names))]
    rows += [(kind, *(f"{each.get(kind, 0):,}" for each in counts)) for kind in kinds]
    rates = (f"{tally.near_tie_rate:.1e} (allowed: {MOST_NEAR_TIES:.0e})" for tally in tallies)
    rows += [("near-ties per decision", *rates)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def told(tally: Tally) -> str:
    """Near-ties and unexplained differences one by one, each with what shows it."""
    chosen = tally.excuses[:MOST_EXCUSES] + tally.failures[:MOST_FAILURES]
    return "".join(f"{difference}\n    {shown_by}\n" for shown_by, difference in chosen)


def _counts(tally: Tally) -> Iterator[tuple[str, int]]:
    yield "batches", tally.num_batches
    if tally.num_unsupported:
        yield "unsupported", tally.num_unsupported
    yield "requests", tally.num_requests
    yield "decisions", tally.num_decisions
    yield "near-ties", tally.near_ties.total()
    yield from sorted(tally.near_ties.items())
    yield "unexplained", len(tally.failures)
