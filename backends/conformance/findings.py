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
        race: which one, and who won it, if it was a race: calls may look at one and the same.
    """

    request: int
    row: int
    decision: str
    expected: str
    got: str
    margin: float
    excused: bool = False
    race: str = ""

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
        num_tests: of draft tokens, on the requests' paths, where they are no races.
        differences: where the two disagree, excused ones included.
        races: on the requests' paths, each once: the request, its name, and how many levels it has.
    """

    num_requests: int = 0
    num_tests: int = 0
    differences: tuple[Difference, ...] = ()
    races: frozenset[tuple[int, str, int]] = frozenset()

    def __add__(self, other: "Findings") -> "Findings":
        """Both."""
        return Findings(
            self.num_requests + other.num_requests,
            self.num_tests + other.num_tests,
            self.differences + other.differences,
            self.races | other.races,
        )

    @property
    def num_decisions(self) -> int:
        """Tests and races; a race in which several calls draw decides once."""
        return self.num_tests + sum(levels for _, _, levels in self.races)

    @property
    def num_repeated(self) -> int:
        """Excused differences that show a race and a winner which another one shows already."""
        seen = [(d.request, d.race) for d in self.differences if d.excused and d.race]
        return len(seen) - len({*seen})

    @property
    def is_well_formed(self) -> bool:
        """Whether shapes and dtypes were right, so that values can be looked at."""
        return not any(difference.request < 0 for difference in self.differences)

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """The differences that rounding does not explain."""
        return tuple(d for d in self.differences if not d.excused)
