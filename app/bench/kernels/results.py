"""What a run measured, as plain values and as JSON. It refuses to compute what can be derived."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from attrs import asdict, frozen

from ....core.errors import InvalidInputError
from ....core.sampling_params import Recipe
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

    def median(self, name: str) -> float | None:
        """Of one of the attributes; None if it was not measured."""
        times = getattr(self, name)
        return median(times) if times else None


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
        """Of one of the times; None if it was not measured."""
        return None if self.times is None else self.times.median(name)


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
        num_sets: fresh inputs that took turns.
        seconds: how long the run took.
        lines: in the order they were asked for.
    """

    date: str
    machine: dict[str, str]
    bandwidth: float | None
    num_sets: int
    seconds: float
    lines: tuple[Line, ...]

    def to_json(self) -> str:
        """Every raw figure, one workload a line."""
        about = asdict(self, filter=lambda attribute, _: attribute.name != "lines")
        lines = ",\n  ".join(json.dumps(asdict(line)) for line in self.lines)
        return json.dumps(about, indent=1)[:-2] + f',\n "lines": [\n  {lines}\n ]\n}}\n'

    @classmethod
    def read(cls, path: Path) -> "Run":
        """What `to_json` gave.

        Raises:
            InvalidInputError: the file is missing, or something else.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            lines = tuple(_line(line) for line in values.pop("lines"))
            return cls(lines=lines, **values)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{path}: expected what `acceptor bench kernels --json` wrote, got {error!r}"
            ) from error


def _line(values: dict[str, Any]) -> Line:
    workload = dict(values["workload"])
    floor = values["floor"]
    return Line(
        workload=Workload(**{**workload, "recipe": Recipe(**workload["recipe"])}),
        floor=None if floor is None else Floor(**floor),
        cells=tuple(map(_cell, values["cells"])),
    )


def _cell(values: dict[str, Any]) -> Cell:
    times = values["times"]
    if times is not None:
        times = Times(**{name: tuple(series) for name, series in times.items()})
    return Cell(**{**values, "times": times})
