"""What was found when answers were held against the oracle, of one case and of many."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import asdict, define, field, fields_dict, frozen

MOST_NEAR_TIES = 1e-5
"""The share of decisions that rounding may turn."""

FREE_NEAR_TIES = 3
"""How many a run may have that is too short to tell a rate."""

LOGPROB_ORDER = "logprob order"


@frozen
class Difference:
    """One place where a backend and the oracle disagree.

    Attributes:
        request: which one of the batch; -1 for all of it.
        row: which place of its output.
        decision: what was decided there.
        expected: the oracle's answer.
        got: the backend's.
        margin: the relative distance of what was compared, in float64; infinite if none explains
            the difference.
        excused: whether rounding explains it.
    """

    request: int
    row: int
    decision: str
    expected: str
    got: str
    margin: float = math.inf
    excused: bool = False

    def __str__(self) -> str:
        """One line."""
        verdict = "near-tie" if self.excused else "unexplained"
        return (
            f"request {self.request}, row {self.row}, {self.decision}: expected {self.expected}, "
            f"got {self.got}, margin {self.margin:.3g} ({verdict})"
        )


@frozen
class Findings:
    """What comparing calls with the oracle gave.

    Attributes:
        num_requests: compared requests.
        num_decisions: tests of draft tokens and levels of races, on the requests' paths.
        differences: where the two disagree, excused ones included.
    """

    num_requests: int = 0
    num_decisions: int = 0
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: "Findings") -> "Findings":
        """Both."""
        return Findings(
            self.num_requests + other.num_requests,
            self.num_decisions + other.num_decisions,
            self.differences + other.differences,
        )

    @property
    def is_well_formed(self) -> bool:
        """Whether shapes and dtypes were right, so that values can be looked at."""
        return not any(difference.request < 0 for difference in self.differences)

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """The differences that rounding does not explain."""
        return tuple(d for d in self.differences if not d.excused)


@define
class Tally:
    """Counts over many cases.

    Attributes:
        num_batches: compared cases.
        num_unsupported: cases whose policy the backend lacks.
        num_requests, num_decisions: see `Findings`.
        near_ties: excused differences by decision.
        excuses: each of them, with the name of what shows it.
        failures: what is unexplained, with the name of what shows it.
    """

    num_batches: int = 0
    num_unsupported: int = 0
    num_requests: int = 0
    num_decisions: int = 0
    near_ties: Counter[str] = field(factory=Counter)
    excuses: list[tuple[str, Difference]] = field(factory=list)
    failures: list[tuple[str, Difference]] = field(factory=list)

    def add(self, name: str, findings: Findings | None) -> None:
        """Count what something of a name shows; None if the backend lacks its policy."""
        if findings is None:
            self.num_unsupported += 1
            return
        self.num_batches += 1
        self.num_requests += findings.num_requests
        self.num_decisions += findings.num_decisions
        excused = [difference for difference in findings.differences if difference.excused]
        self.near_ties.update(difference.decision for difference in excused)
        self.excuses += [(name, difference) for difference in excused]
        self.failures += [(name, difference) for difference in findings.unexplained]

    def include(self, other: "Tally") -> None:
        """Add what another one counted."""
        for name in fields_dict(Tally):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_values(self) -> dict[str, Any]:
        """What `from_values` reads."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "Tally":
        """What `to_values` gave, read from JSON."""
        differences = {
            kind: [(name, Difference(**difference)) for name, difference in values[kind]]
            for kind in ("excuses", "failures")
        }
        return cls(**{**values, **differences, "near_ties": Counter(values["near_ties"])})

    @property
    def num_turned(self) -> int:
        """Decisions that rounding turned; the order of logprobs is none."""
        return self.near_ties.total() - self.near_ties[LOGPROB_ORDER]

    @property
    def near_tie_rate(self) -> float:
        """Turned decisions per decision."""
        return self.num_turned / max(self.num_decisions, 1)

    @property
    def is_conformant(self) -> bool:
        """Something was compared, nothing is unexplained, and near-ties are rare."""
        rare = self.near_tie_rate <= MOST_NEAR_TIES or self.num_turned <= FREE_NEAR_TIES
        return rare and not self.failures and self.num_batches > 0
