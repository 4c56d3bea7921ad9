"""What a whole run found; refuses to forget an excuse."""

from collections import Counter

from attrs import define, field

from .case import Case
from .findings import Difference, Findings


@define
class Tally:
    """Counts over many cases.

    Attributes:
        num_batches: compared cases.
        num_unsupported: cases whose policy the backend lacks.
        num_requests: compared requests, draws included.
        num_decisions: tests of draft tokens and races.
        excused: near-ties by decision.
        failures: what is unexplained, with the case that shows it.
    """

    num_batches: int = 0
    num_unsupported: int = 0
    num_requests: int = 0
    num_decisions: int = 0
    excused: Counter[str] = field(factory=Counter)
    failures: list[tuple[Case, Difference]] = field(factory=list)

    def add(self, case: Case, findings: Findings) -> None:
        """Count one case."""
        self.num_batches += 1
        self.num_requests += findings.num_requests
        self.num_decisions += findings.num_decisions
        self.excused.update(d.decision for d in findings.differences if d.excused)
        self.failures += [(case, difference) for difference in findings.unexplained]

    def __add__(self, other: "Tally") -> "Tally":
        """Both."""
        return Tally(
            self.num_batches + other.num_batches,
            self.num_unsupported + other.num_unsupported,
            self.num_requests + other.num_requests,
            self.num_decisions + other.num_decisions,
            self.excused + other.excused,
            self.failures + other.failures,
        )

    @property
    def num_differences(self) -> int:
        """Excused and unexplained."""
        return self.excused.total() + len(self.failures)

    @property
    def excused_rate(self) -> float:
        """Excused differences per decision."""
        return self.excused.total() / max(self.num_decisions, 1)
