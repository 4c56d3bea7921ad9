"""A run's tables and picture: cold and eager times by batch size, the slowest inputs of a row."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from attrs import evolve

from ..files import BASELINE, Picture
from ..files import Line as Curve
from ..table import Table
from .workload import Cell, Line, Run, Workload

NOT_AVAILABLE = "not available"

Found = Sequence[tuple[Cell, Line]]
"""One backend's cells for a row and a batch size: one, or one for each kind of inputs."""
Renders = Mapping[str, Callable[[Found], str]]
"""The value of a column, by the word after the backend in its head."""


def number(value: float | None) -> str:
    """A number with three digits or one decimal, whichever is more."""
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def markdown(run: Run) -> str:
    """The machine and every table, for the documentation."""
    parts = (f"**{title}**\n\n{table.as_markdown()}" for title, table in tables(run))
    return "\n".join((f"{about(run)}\n", *parts))


def about(run: Run) -> str:
    """The machine, the speed of its memory, and problems of the run."""
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    lines = (*run.lines, *run.worst)
    first, cells = lines[0].workload, [cell for line in lines for cell in line.cells]
    text = (
        f"{run.date}; {machine}. Unless a row says otherwise, {first.policy}, "
        f"V = {first.vocab_size:,}, K = {first.num_spec_tokens}, {first.dtype} and {first.inputs} "
        f"inputs."
    )
    if run.bandwidth is not None:
        text += f" A plain read reaches {run.bandwidth / 1e12:.2f} TB/s."
    num_checked = sum(cell.num_checked for cell in cells)
    num_different = sum(cell.num_different for cell in cells)
    text += f" Of {num_checked:,} requests checked, {num_different:,} differ from the reference."
    if run.num_left_out:
        num_wanted = len(lines) + run.num_left_out
        text += f" There was no time for {run.num_left_out:,} of {num_wanted:,} workloads."
    return text


def tables(run: Run) -> Iterator[tuple[str, Table]]:
    """The tables with titles; a title names the batch sizes whose times a cell lists."""
    if run.lines:
        title = "Graph replay with a cold cache, and eager call to its synchronised result, µs at"
        renders: Renders = {
            "": _slowest,
            ", eager": lambda one: number(evolve(one[0][0], replays=()).time),
        }
        yield _side_by_side(title, run.lines, renders, by_inputs=True)
    if run.worst:
        kinds = ", ".join(dict.fromkeys(line.workload.inputs for line in run.worst))
        title = f"The slowest of {kinds} inputs, graph replay, cold cache, µs at"
        yield _side_by_side(title, run.worst, {"": _slowest})
        yield from _mask_costs(run)


def _mask_costs(run: Run) -> Iterator[tuple[str, Table]]:
    """The cost of masks, from pairs of rows with the same outcome, so that both read the same."""
    applied = {
        evolve(line.workload, is_applied=False): line.cells
        for line in run.worst
        if line.workload.is_applied
    }
    costs = [
        evolve(line, floor=None, cells=tuple(map(_over, line.cells, applied[line.workload])))
        for line in run.worst
        if line.workload in applied
    ]
    if costs:
        title = "Masked calls over calls with logits of -inf instead, at most, at"
        yield _side_by_side(title, costs, {"": partial(_slowest, show="{:.2f}".format)})


def _over(cell: Cell, other: Cell) -> Cell:
    ratio = (cell.time / other.time,) if cell.time and other.time else ()
    return evolve(cell, replays=ratio, eager=())


def problems(run: Run) -> Iterator[str]:
    """The problems that kept a backend from being measured, each once."""
    cells = (cell for line in (*run.lines, *run.worst) for cell in line.cells)
    yield from dict.fromkeys(f"{cell.backend}: {cell.problem}" for cell in cells if cell.problem)


def _slowest(found: Found, show: Callable[[float], str] = number) -> str:
    """The longest time and, if there are several kinds of inputs, the kind that took it."""
    cell, line = max(found, key=lambda one: math.inf if one[0].time is None else one[0].time)
    time = NOT_AVAILABLE if cell.time is None else show(cell.time)
    return f"{time} {line.workload.inputs}" if len(found) > 1 else time


def _side_by_side(
    title: str, lines: Sequence[Line], renders: Renders, *, by_inputs: bool = False
) -> tuple[str, Table]:
    """A row for each workload and columns for each backend; each cell lists all batch sizes."""
    first = lines[0].workload
    sizes = dict.fromkeys(line.workload.num_reqs for line in lines)
    groups = defaultdict[str, dict[int, list[Line]]](lambda: {size: [] for size in sizes})
    for line in lines:
        shown = line.workload if by_inputs else evolve(line.workload, inputs=first.inputs)
        groups[_label(shown, first)][line.workload.num_reqs].append(line)
    cells: dict[tuple[str, str], str] = {}
    for name, by_size in groups.items():
        found = by_size.values()
        if any(line.floor for line in lines):
            cells[name, "floor"] = _cell([number(of[0].floor) if of else "–" for of in found])
        for (what, render), (place, cell) in product(renders.items(), enumerate(lines[0].cells)):
            times = ([(line.cells[place], line) for line in of] for of in found)
            texts = [render(one) if one else "–" for one in times]
            cells[name, f"{cell.backend}{what}"] = _cell(texts)
    return f"{title} R = {'/'.join(map(str, sizes))}", Table.of("", cells)


def _cell(texts: Sequence[str]) -> str:
    return "/".join(texts if len({*texts}) > 1 else texts[:1])


def _label(workload: Workload, first: Workload) -> str:
    """The parameters, and those parts of policy and shape that differ from the first row's."""
    words = {
        workload.label.removeprefix(f"{first.policy}, "): True,
        f"K = {workload.num_spec_tokens}": workload.num_spec_tokens != first.num_spec_tokens,
        f"V = {workload.vocab_size:,}": workload.vocab_size != first.vocab_size,
        workload.dtype: workload.dtype != first.dtype,
        f"{workload.inputs} inputs": workload.inputs != first.inputs,
    }
    return ", ".join(word for word, is_shown in words.items() if is_shown)


def picture(run: Run) -> Picture:
    """One panel for each workload; those of the worst table only if there are no others."""
    measured = run.lines or run.worst
    panels = defaultdict[str, dict[str, Curve]](dict)
    for line in measured:
        curves = panels[_label(line.workload, measured[0].workload)]
        times = {"floor": line.floor} | {cell.backend: cell.time for cell in line.cells}
        for place, (name, time) in enumerate(times.items()):
            dots = {"color": f"C{place - 1}", "marker": "o", "markersize": 4}
            if time is not None:
                points, _ = curves.get(name, ((), {}))
                points = [*points, (line.workload.num_reqs, time)]
                curves[name] = points, dots if place else BASELINE
    return Picture("requests", "µs, cold cache", panels, logarithmic=True)
