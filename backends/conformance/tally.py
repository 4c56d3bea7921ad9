"""What a whole run found; refuses to forget an excuse."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, fields_dict

from .case import Case
from .findings import Difference, Findings

MOST_NEAR_TIES = 1e-5
"""The share of decisions that rounding may turn."""

FREE_NEAR_TIES = 3
"""How many a run may have that is too short to tell a rate."""


@define
class Tally:
    """Counts over many cases.

    Attributes:
        num_batches: compared cases.
        num_unsupported: cases whose policy the backend lacks.
        num_requests: compared requests, draws included.
        num_decisions: tests of draft tokens and races, each race of a case once.
        near_ties: excused differences by decision.
        excuses: each of them, with the name of what shows it.
        failures: what is unexplained, with the name of what shows it.
        num_repeated: excuses for a race that another one of the same case is for.
    """

    num_batches: int = 0
    num_unsupported: int = 0
    num_requests: int = 0
    num_decisions: int = 0
    near_ties: Counter[str] = field(factory=Counter)
    excuses: list[tuple[str, Difference]] = field(factory=list)
    failures: list[tuple[str, Difference]] = field(factory=list)
    num_repeated: int = 0

    def add(self, name: str, findings: Findings | None) -> None:
        """Count one case or corner; None if the backend lacks its policy."""
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
        self.num_repeated += findings.num_repeated

    def add_case(self, case: Case, findings: Findings | None) -> None:
        """Count one case; None if the backend lacks its policy."""
        self.add(case.to_json(), findings)

    def include(self, other: "Tally") -> None:
        """Add what another one counted."""
        both = self + other
        for attribute in fields_dict(Tally):
            setattr(self, attribute, getattr(both, attribute))

    def __add__(self, other: "Tally") -> "Tally":
        """Both."""
        return Tally(
            self.num_batches + other.num_batches,
            self.num_unsupported + other.num_unsupported,
            self.num_requests + other.num_requests,
            self.num_decisions + other.num_decisions,
            self.near_ties + other.near_ties,
            self.excuses + other.excuses,
            self.failures + other.failures,
            self.num_repeated + other.num_repeated,
        )

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "Tally":
        """What `attrs.asdict` made of it, read from JSON."""
        differences = {
            kind: [(name, Difference(**difference)) for name, difference in values[kind]]
            for kind in ("excuses", "failures")
        }
        return cls(**{**values, **differences, "near_ties": Counter(values["near_ties"])})

    @property
    def num_differences(self) -> int:
        """Near-ties and unexplained ones."""
        return self.near_ties.total() + len(self.failures)

    @property
    def near_tie_rate(self) -> float:
        """Turned decisions per decision, each counted once; the order of logprobs is none."""
        return self._num_turned / max(self.num_decisions, 1)

    @property
    def _num_turned(self) -> int:
        shown = sum(n for decision, n in self.near_ties.items() if decision != "logprob order")
        return shown - self.num_repeated

    @property
    def is_conformant(self) -> bool:
        """Something was compared, nothing is unexplained, and near-ties are rare."""
        rare = self.near_tie_rate <= MOST_NEAR_TIES or self._num_turned <= FREE_NEAR_TIES
        return rare and not self.failures and self.num_batches > 0


def total(tallies: Iterable[Tally]) -> Tally:
    """All of them."""
    return sum(tallies, Tally())
