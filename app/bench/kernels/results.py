"""What a run measured, as plain values."""

from statistics import median

from attrs import frozen

from .workload import Workload


@frozen(kw_only=True)
class Cell:
    """One backend on one workload. Times are microseconds of every call, each with a cold cache.

    Attributes:
        replays: of CUDA graphs.
        eager: from the call to its synchronised result.
        problem: why there are no times.
        mean_accepted: draft tokens per request.
        num_checked: requests whose tokens were compared with the reference's.
        num_different: of these, how many differ; near-ties are not excused here.
        first_call_seconds: the first call, compilation included.
    """

    backend: str
    replays: tuple[float, ...] = ()
    eager: tuple[float, ...] = ()
    problem: str = ""
    mean_accepted: float | None = None
    num_checked: int = 0
    num_different: int = 0
    first_call_seconds: float | None = None

    @property
    def time(self) -> float | None:
        """The median, of replays if there are any."""
        times = self.replays or self.eager
        return median(times) if times else None

    @property
    def eager_time(self) -> float | None:
        """The median of eager calls."""
        return median(self.eager) if self.eager else None


@frozen(kw_only=True)
class Line:
    """One workload and every backend on it.

    Attributes:
        floor: microseconds of reading its bytes once; None where that was not measured.
    """

    workload: Workload
    floor: float | None
    cells: tuple[Cell, ...]


@frozen(kw_only=True)
class Run:
    """Everything that one run measured.

    Attributes:
        bandwidth: bytes per second of a plain read; None if it could not be measured.
        num_sets: fresh inputs that took turns, not in the worst table.
        lines: in the order they were asked for.
        worst: lines of the worst table, which says for each row and size which inputs are slowest.
        num_left_out: lines for which there was no time.
    """

    date: str
    machine: dict[str, str]
    bandwidth: float | None
    num_sets: int
    seconds: float
    lines: tuple[Line, ...]
    worst: tuple[Line, ...] = ()
    num_left_out: int = 0
