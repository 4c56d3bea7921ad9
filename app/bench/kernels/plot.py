"""A run's picture: time over batch size, and the floor below it."""

from collections.abc import Iterator, Sequence

from ..picture import Line, Picture
from . import results
from .table import label


def picture(run: results.Run) -> Picture:
    """One panel for each workload, of the worst table only where there is no other."""
    measured = run.lines or run.worst
    grouped: dict[str, list[results.Line]] = {}
    for line in measured:
        grouped.setdefault(label(line, measured), []).append(line)
    panels = {name: [*_lines(group)] for name, group in grouped.items()}
    return Picture(x_label="requests", y_label="µs, cold cache", panels=panels, logarithmic=True)


def _lines(group: Sequence[results.Line]) -> Iterator[Line]:
    floor = {"color": "black", "linestyle": "--", "linewidth": 1}
    columns = [("floor", floor, [line.floor for line in group])]
    for place, cell in enumerate(group[0].cells):
        look = {"color": f"C{place}", "marker": "o", "markersize": 4}
        columns.append((cell.backend, look, [line.cells[place].time for line in group]))
    for name, look, times in columns:
        sized = zip((line.workload.num_reqs for line in group), times, strict=True)
        points = [(num_reqs, time) for num_reqs, time in sized if time is not None]
        if points:
            yield Line(name=name, points=points, look=look)
