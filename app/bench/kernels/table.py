"""A run's tables and picture: cold and eager times by batch size, the slowest inputs of a row."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from attrs import evolve

from ..files import BASELINE, Picture
from ..files import Line as Curve
from ..table import Table
from .workload import Cell, Line, Run

NOT_AVAILABLE = "not available"
SHAPE_WITHOUT_INPUTS = ("num_spec_tokens", "vocab_size", "dtype")
SHAPE = (*SHAPE_WITHOUT_INPUTS, "inputs")

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
        yield _side_by_side(title, run.lines, renders, SHAPE)
    if run.worst:
        kinds = ", ".join(dict.fromkeys(line.workload.inputs for line in run.worst))
        title = f"The slowest of {kinds} inputs, graph replay, cold cache, µs at"
        yield _side_by_side(title, run.worst, {"": _slowest})
        yield from _mask_costs(run)


def _mask_costs(run: Run) -> Iterator[tuple[str, Table]]:
    """The cost of masks, from pairs of rows with the same outcome, so that both read the same."""
    lines = {line.workload: line for line in run.worst}
    costs = [
        evolve(line, floor=None, cells=tuple(map(_over, line.cells, other.cells)))
        for line in run.worst
        if line.workload.is_masked
        and (other := lines.get(evolve(line.workload, is_applied=True))) is not None
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
    title: str,
    lines: Sequence[Line],
    renders: Renders,
    shown: Sequence[str] = SHAPE_WITHOUT_INPUTS,
) -> tuple[str, Table]:
    """A row for each workload and columns for each backend; each cell lists all batch sizes."""
    sizes = list(dict.fromkeys(line.workload.num_reqs for line in lines))
    groups, cells = dict[str, list[list[Line]]](), dict[tuple[str, str], str]()
    for line in lines:
        by_size = groups.setdefault(label(line, lines, shown), [[] for _ in sizes])
        by_size[sizes.index(line.workload.num_reqs)].append(line)
    for name, found in groups.items():
        if any(line.floor for line in lines):
            cells[name, "floor"] = _cell([number(of[0].floor) if of else "–" for of in found])
        for (what, render), (place, cell) in product(renders.items(), enumerate(lines[0].cells)):
            times = ([(line.cells[place], line) for line in of] for of in found)
            texts = [render(one) if one else "–" for one in times]
            cells[name, f"{cell.backend}{what}"] = _cell(texts)
    return f"{title} R = {'/'.join(map(str, sizes))}", Table.of("", cells)


def _cell(texts: Sequence[str]) -> str:
    return "/".join(texts if len({*texts}) > 1 else texts[:1])


def label(line: Line, lines: Sequence[Line], shown: Sequence[str] = SHAPE) -> str:
    """The parameters, and those parts of policy and shape that differ from the first line's."""
    first, workload = lines[0].workload, line.workload
    shape = {
        "num_spec_tokens": f"K = {workload.num_spec_tokens}",
        "vocab_size": f"V = {workload.vocab_size:,}",
        "dtype": workload.dtype,
        "inputs": f"{workload.inputs} inputs",
    }
    others = (name for name in shown if getattr(workload, name) != getattr(first, name))
    parameters = workload.label.removeprefix(f"{first.policy}, ")
    return ", ".join((parameters, *(shape[name] for name in others)))


def picture(run: Run) -> Picture:
    """One panel for each workload; those of the worst table only if there are no others."""
    measured = run.lines or run.worst
    panels: dict[str, dict[str, Curve]] = {label(line, measured): {} for line in measured}
    for line in measured:
        curves = panels[label(line, measured)]
        times = ((cell.backend, cell.time) for cell in line.cells)
        for place, (name, time) in enumerate((("floor", line.floor), *times)):
            dots = {"color": f"C{place - 1}", "marker": "o", "markersize": 4}
            look = dots if place else BASELINE
            if time is not None:
                points, _ = curves.get(name, ((), {}))
                curves[name] = [*points, (line.workload.num_reqs, time)], look
    return Picture(x_label="requests", y_label="µs, cold cache", panels=panels, logarithmic=True)
