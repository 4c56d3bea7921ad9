"""The outcome of comparing answers with the oracle: for one case, for many, and for a whole run.

A run's record is JSON. It suffices to judge the run later, and to continue where it stopped.
"""

import json
import math
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from operator import add
from pathlib import Path

import torch
from attrs import Factory, asdict, astuple, evolve, field, frozen

from ...core.errors import InvalidInputError
from .oracle.law import TOLERANCE

MOST_NEAR_TIES = 1e-5
"""The largest share of decisions that rounding may change."""

FREE_NEAR_TIES = 3
"""How many a run may have if it is too short for a rate."""

LOGPROB_ORDER = "logprob order"
CONFORMANT = "conformant"
MOST_FAILURES = 5
MOST_EXCUSES = 20
MOST_CHARACTERS = 64 * 2**20


@frozen
class Difference:
    """One place where a backend and the oracle disagree.

    Attributes:
        request: its index in the batch; -1 for the whole batch.
        row: the place in its output.
        decision: what was decided there.
        expected: the oracle's answer.
        got: the backend's answer.
        margin: the relative distance of the compared values, in float64; infinite if no distance
            explains the difference.
        excused: whether rounding explains it; decided by the margin unless given.
        shown_by: the case or corner that shows it.
    """

    request: int
    row: int
    decision: str
    expected: str
    got: str
    margin: float = math.inf
    excused: bool = Factory(lambda self: self.margin <= TOLERANCE, takes_self=True)
    shown_by: str = ""

    def __str__(self) -> str:
        """One line."""
        verdict = "near-tie" if self.excused else "unexplained"
        return (
            f"request {self.request}, row {self.row}, {self.decision}: expected {self.expected}, "
            f"got {self.got}, margin {self.margin:.3g} ({verdict})"
        )


@frozen
class Findings:
    """The result of comparing one call, or many batches, with the oracle.

    Attributes:
        num_batches: compared cases and corners.
        num_unsupported: those whose policy the backend lacks.
        num_requests: compared requests.
        num_decisions: tests of draft tokens and levels of races, on the requests' paths.
        differences: where backend and oracle disagree, excused ones included.
    """

    num_batches: int = 0
    num_unsupported: int = 0
    num_requests: int = 0
    num_decisions: int = 0
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: "Findings") -> "Findings":
        """The sum of both."""
        mine, theirs = (astuple(each, recurse=False) for each in (self, other))
        return Findings(*map(add, mine, theirs))

    def shown_by(self, name: str) -> "Findings":
        """These findings, each difference with the name of the case or corner that shows it."""
        named = tuple(evolve(difference, shown_by=name) for difference in self.differences)
        return evolve(self, differences=named)

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """The differences that rounding does not explain."""
        return tuple(d for d in self.differences if not d.excused)

    @property
    def excused(self) -> tuple[Difference, ...]:
        """The differences that rounding explains."""
        return tuple(d for d in self.differences if d.excused)

    @property
    def near_ties(self) -> Counter[str]:
        """Excused differences by decision."""
        return Counter(difference.decision for difference in self.excused)

    @property
    def num_turned(self) -> int:
        """How many decisions rounding changed; the order of logprobs is not a decision."""
        return self.near_ties.total() - self.near_ties[LOGPROB_ORDER]

    @property
    def near_tie_rate(self) -> float:
        """The share of decisions that rounding changed."""
        return self.num_turned / max(self.num_decisions, 1)

    @property
    def is_conformant(self) -> bool:
        """Something was compared, nothing is unexplained, and near-ties are rare."""
        rare = self.near_tie_rate <= MOST_NEAR_TIES or self.num_turned <= FREE_NEAR_TIES
        return rare and not self.unexplained and self.num_batches > 0


Found = tuple[Findings, ...]
"""The findings of one backend; or those of each of two, and of comparing the two."""


def added(some: Sequence[Findings], more: Sequence[Findings]) -> Found:
    """Add findings place by place."""
    return tuple(one + other for one, other in zip(some, more, strict=True))


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("acceptor", "numpy", "torch"):
        versions[name] = "not installed"  # as where a checkout lies on the path
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@frozen
class Record:
    """A run's outcome.

    Attributes:
        backends: one name or two.
        device: where they ran.
        found: the findings about each of `names`.
        next_chunk: the number after the last chunk that was run.
        corners_left: how many corners were not reached in time.
        machine: the kind of machine.
        versions: those of all packages that decide a chunk's batches or the results.
    """

    backends: tuple[str, ...]
    device: str
    found: Found
    next_chunk: int = 0
    corners_left: int = 0
    machine: str = field()
    versions: Mapping[str, str] = field(factory=_versions)

    @machine.default
    def _here(self) -> str:
        if torch.device(self.device).type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"{platform.machine()}, {os.cpu_count()} CPU cores"

    @property
    def names(self) -> tuple[str, ...]:
        """What each of the findings is about."""
        return (*self.backends, *([" and ".join(self.backends)] if len(self.backends) > 1 else []))

    @property
    def is_conformant(self) -> bool:
        """All corners ran, all backends conform, and their differences are all explained."""
        return self.verdict == CONFORMANT

    @property
    def verdict(self) -> str:
        """The verdict in one line; near-ties between two backends need not be rare."""
        of_backends = (each for each in self.found[: len(self.backends)] if each.num_batches)
        conform = all(each.is_conformant for each in of_backends)
        if not conform or any(each.unexplained for each in self.found):
            return "NOT conformant"
        if self.corners_left:
            return f"INCOMPLETE: expected all corners in time, got {self.corners_left} not compared"
        if not all(each.num_batches for each in self.found):
            return "INCOMPLETE: expected batches to compare, got none"
        return CONFORMANT

    def including(self, number: int | None, found: Sequence[Findings]) -> "Record":
        """The record with one more chunk, or with some corners, which have no number."""
        sums = added(self.found, found)
        if number is not None:
            return evolve(self, found=sums, next_chunk=max(self.next_chunk, number + 1))
        done = found[0].num_batches + found[0].num_unsupported
        return evolve(self, found=sums, corners_left=max(self.corners_left - done, 0))

    @property
    def page(self) -> str:
        """The record as a page for people."""
        return f"On {self.machine}:\n\n{table(self.names, self.found)}"

    def write(self, path: Path) -> None:
        """Write JSON, and beside it the page as .md.

        Raises:
            InvalidInputError: the files cannot be written there.
        """
        values = {
            "date": datetime.now(UTC).date().isoformat(),
            "is_conformant": self.is_conformant,
            **asdict(self),
        }
        try:
            path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
            path.with_suffix(".md").write_text(self.page, encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"{path}: expected a place to write to, got {error}") from error

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Read what `write` wrote.

        Raises:
            InvalidInputError: the file is missing, or is not a record.
        """
        try:
            with path.open(encoding="utf-8") as file:
                values = json.loads(file.read(MOST_CHARACTERS))
            found = tuple(map(_findings, values["found"]))
            names = ("device", "next_chunk", "corners_left", "machine", "versions")
            return cls(tuple(values["backends"]), found=found, **{n: values[n] for n in names})
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidInputError(
                f"{path}: expected the record of a conformance run, got {error!r}"
            ) from error


def _findings(values: Mapping[str, object]) -> Findings:
    differences = tuple(Difference(**each) for each in values["differences"])  # type: ignore[attr-defined]
    return Findings(**{**values, "differences": differences})  # type: ignore[arg-type]


def table(names: Sequence[str], found: Sequence[Findings]) -> str:
    """Counts and near-ties by decision in Markdown, side by side."""
    counts = [dict(_counts(each)) for each in found]
    kinds = dict.fromkeys(kind for each in counts for kind in each)
    rows = [("", *(f"`{name}`" for name in names)), ["---"] * (1 + len(names))]
    rows += [(kind, *(f"{each.get(kind, 0):,}" for each in counts)) for kind in kinds]
    rates = (f"{each.near_tie_rate:.1e}" for each in found)
    rows += [(f"near-ties per decision (at most {MOST_NEAR_TIES:.0e})", *rates)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def listing(found: Findings) -> str:
    """Near-ties and unexplained differences one by one, each with what shows it."""
    chosen = found.excused[:MOST_EXCUSES] + found.unexplained[:MOST_FAILURES]
    return "".join(f"{difference}\n    {difference.shown_by}\n" for difference in chosen)


def _counts(found: Findings) -> Iterator[tuple[str, int]]:
    yield "batches", found.num_batches
    if found.num_unsupported:
        yield "unsupported", found.num_unsupported
    yield "requests", found.num_requests
    yield "decisions", found.num_decisions
    yield "near-ties", found.near_ties.total()
    yield from sorted(found.near_ties.items())
    yield "unexplained", len(found.unexplained)
