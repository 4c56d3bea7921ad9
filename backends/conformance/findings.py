"""What was found when answers were held against the oracle, of one case and of many."""

import math
from collections import Counter
from operator import add

from attrs import Factory, astuple, evolve, frozen

from .oracle.law import TOLERANCE

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
        excused: whether rounding explains it; by the margin unless something else is given.
        shown_by: the case or the corner.
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
    """What comparing with the oracle gave, of one call or of many batches.

    Attributes:
        num_batches: compared cases and corners.
        num_unsupported: those whose policy the backend lacks.
        num_requests: compared requests.
        num_decisions: tests of draft tokens and levels of races, on the requests' paths.
        differences: where the two disagree, excused ones included.
    """

    num_batches: int = 0
    num_unsupported: int = 0
    num_requests: int = 0
    num_decisions: int = 0
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: "Findings") -> "Findings":
        """Both."""
        mine, theirs = (astuple(each, recurse=False) for each in (self, other))
        return Findings(*map(add, mine, theirs))

    def shown_by(self, name: str) -> "Findings":
        """The same, with the name of what shows it."""
        named = tuple(evolve(difference, shown_by=name) for difference in self.differences)
        return evolve(self, differences=named)

    @property
    def is_well_formed(self) -> bool:
        """Whether shapes and dtypes were right, so that values can be looked at."""
        return not any(difference.request < 0 for difference in self.differences)

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
        return rare and not self.unexplained and self.num_batches > 0
