"""What was found when a backend's answer was held against the oracle; refuses to judge."""

from attrs import frozen


@frozen
class Difference:
    """One place where a backend and the oracle disagree.

    Attributes:
        request: which one of the batch.
        row: which place of its output.
        decision: what was decided there.
        expected: the oracle's answer.
        got: the backend's.
        margin: the relative distance of what was compared, in float64.
        excused: whether rounding explains it.
    """

    request: int
    row: int
    decision: str
    expected: str
    got: str
    margin: float
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
    """What comparing one call with the oracle gave.

    Attributes:
        num_requests: compared requests.
        num_decisions: tests of draft tokens and races on their paths.
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
