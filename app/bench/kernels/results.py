"""What a run measured, as plain values."""

from statistics import median

from attrs import frozen

from .floor import Floor
from .workload import Workload


@frozen(kw_only=True)
class Times:
    """Microseconds of every call, in the order of the calls.

    Attributes:
        graph_cold: replays of a CUDA graph after the level-2 cache was flushed.
        graph_warm: replays right after a replay with the same inputs.
        eager_cold: from the call to its synchronised result, after the same flush.
        eager_warm: the same right after a call with the same inputs.
    """

    graph_cold: tuple[float, ...] = ()
    graph_warm: tuple[float, ...] = ()
    eager_cold: tuple[float, ...] = ()
    eager_warm: tuple[float, ...] = ()


@frozen(kw_only=True)
class Cell:
    """One backend on one workload.

    Attributes:
        backend: its name.
        times: None where it is not available.
        problem: why it is not.
        mean_accepted: draft tokens per request.
        num_checked: requests whose tokens were compared with the reference's.
        num_different: of these, how many differ; near-ties are not excused here.
        first_call_seconds: the first call, compilation included.
    """

    backend: str
    times: Times | None = None
    problem: str = ""
    mean_accepted: float | None = None
    num_checked: int = 0
    num_different: int = 0
    first_call_seconds: float | None = None

    def median(self, name: str) -> float | None:
        """Of one kind of `Times`; None if it was not measured."""
        times = () if self.times is None else getattr(self.times, name)
        return median(times) if times else None

    @property
    def cold(self) -> float | None:
        """Median microseconds with a cold cache, of replays if there are any."""
        return self.median("graph_cold") or self.median("eager_cold")


@frozen(kw_only=True)
class Line:
    """One workload: its floor, and every backend on it."""

    workload: Workload
    floor: Floor | None
    cells: tuple[Cell, ...]

    @property
    def cold_floor(self) -> float | None:
        """Microseconds; None where it was not measured."""
        return None if self.floor is None else self.floor.cold

    @property
    def warm_floor(self) -> float | None:
        """Microseconds; None where it was not measured."""
        return None if self.floor is None else self.floor.warm


@frozen(kw_only=True)
class Run:
    """Everything that one run measured.

    Attributes:
        date: of the run, in UTC.
        machine: the device's name, driver, and versions by name.
        bandwidth: bytes per second of a plain read; None if it could not be measured.
        num_sets: fresh inputs that took turns, not in the worst table.
        seconds: how long the run took.
        lines: in the order they were asked for.
        worst: lines of the worst table, which says for each row and size which inputs are slowest.
    """

    date: str
    machine: dict[str, str]
    bandwidth: float | None
    num_sets: int
    seconds: float
    lines: tuple[Line, ...]
    worst: tuple[Line, ...] = ()
