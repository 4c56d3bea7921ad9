"""From a run's raw times to the figures of its tables; refuses to format them."""

from collections.abc import Sequence

from attrs import frozen

from .results import Cell, Line, Run


@frozen(kw_only=True)
class Figures:
    """What one cell comes to; None where something was not measured.

    Attributes:
        cold: median microseconds of a graph replay with a cold cache; of an eager call where
            nothing can be captured.
        share: of the measured read bandwidth, if every logit that the rule needs is read once.
        floor_ratio: over the time of reading them once.
        backend_ratio: over the first backend's time on the same workload.
    """

    cold: float | None
    share: float | None
    floor_ratio: float | None
    backend_ratio: float | None

    @classmethod
    def of(cls, cell: Cell, line: Line, run: Run) -> "Figures":
        """The figures of a cell of a line of a run."""
        cold, first = cold_time(cell), cold_time(line.cells[0])
        share = None
        if cold is not None and run.bandwidth is not None:
            share = line.workload.num_bytes / (cold * 1e-6) / run.bandwidth
        return cls(
            cold=cold,
            share=share,
            floor_ratio=_ratio(cold, line.cold_floor),
            backend_ratio=_ratio(cold, first),
        )


def cold_time(cell: Cell) -> float | None:
    """Median microseconds with a cold cache, of replays if there are any."""
    return cell.median("graph_cold") or cell.median("eager_cold")


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def label(line: Line, run: Run) -> str:
    """A row of the run's tables: policy and recipe, and the shape if the run has several."""
    shapes = {(other.workload.num_spec_tokens, other.workload.vocab_size) for other in run.lines}
    workload = line.workload
    if len(shapes) == 1:
        return workload.label
    return f"{workload.label}, K = {workload.num_spec_tokens}, V = {workload.vocab_size:,}"


def labels(run: Run) -> Sequence[str]:
    """The rows of a run's tables, in order."""
    return tuple(dict.fromkeys(label(line, run) for line in run.lines))


def sizes(run: Run) -> Sequence[int]:
    """The batch sizes of a run, in order."""
    return tuple(dict.fromkeys(line.workload.num_reqs for line in run.lines))


def backends(run: Run) -> Sequence[str]:
    """The backends of a run, in order."""
    return tuple(cell.backend for cell in run.lines[0].cells) if run.lines else ()
