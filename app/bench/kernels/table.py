"""A run's tables and picture: cold and eager times by batch size, the slowest inputs of a row."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from attrs import evolve

from ..files import BASELINE, Picture
from ..table import Table
from .workload import Line, Run, Workload

FLOOR = "floor"
NOT_AVAILABLE = "not available"

Times = dict[str, float | None]
"""By column, or by kind of inputs."""
Show = Callable[[float], str]


def number(value: float | None) -> str:
    """A number with three digits or one decimal, whichever is more."""
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def markdown(run: Run) -> str:
    """The machine and every table, for the documentation."""
    parts = (f"**{title}**\n\n{table.as_markdown()}" for title, table in tables(run))
    return "\n".join((f"{about(run)}\n", *parts))


def about(run: Run) -> str:
    """The machine, the speed of its memory, and how far requests were checked."""
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
        calls = ", and ".join(dict.fromkeys((_call(run), "eager call"))).capitalize()
        title = f"{calls} to its synchronised result, µs at"
        both = {line.workload: _cold(line) | _eager(line) for line in run.lines}
        yield _side_by_side(title, both, by_inputs=True)
    worst = {line.workload: _cold(line) for line in run.worst}
    if worst:
        kinds = ", ".join(dict.fromkeys(one.inputs for one in worst))
        title = f"The slowest of {kinds} inputs, {_call(run)}, µs at"
        yield _side_by_side(title, worst)
    # Both of a pair have the same outcome, so that they read the same.
    pairs = {one: evolve(one, is_applied=True) for one in worst if one.is_masked}
    costs = {one: _ratios(worst[one], worst[two]) for one, two in pairs.items() if two in worst}
    if costs:
        title = "Masked calls over calls with logits of -inf instead, at most, at"
        yield _side_by_side(title, costs, show="{:.2f}".format)


def _call(run: Run) -> str:
    """What is timed unless a column says otherwise."""
    return "graph replay, cold cache" if "cuda" in run.machine else "eager call"


def _cold(line: Line) -> Times:
    floor: Times = {} if line.floor is None else {FLOOR: line.floor}
    return floor | {cell.column: cell.time for cell in line.cells}


def _eager(line: Line) -> Times:
    both = [cell for cell in line.cells if cell.replays and cell.eager]
    return {f"{cell.backend}, eager": median(cell.eager) for cell in both}


def _ratios(times: Times, others: Times) -> Times:
    names = [name for name in times if name != FLOOR]
    both = [(name, times[name], others[name]) for name in names]
    return {name: one / other if one and other else None for name, one, other in both}


def problems(run: Run) -> Iterator[str]:
    """The problems that kept a backend from being measured, each once."""
    cells = (cell for line in (*run.lines, *run.worst) for cell in line.cells)
    yield from dict.fromkeys(f"{cell.backend}: {cell.problem}" for cell in cells if cell.problem)


def _side_by_side(
    title: str, measured: Mapping[Workload, Times], show: Show = number, *, by_inputs: bool = False
) -> tuple[str, Table]:
    """A row for each workload, and columns of times; each cell lists all batch sizes."""
    first = next(iter(measured))
    sizes = dict.fromkeys(one.num_reqs for one in measured)
    found = defaultdict[tuple[str, str], dict[int, Times]](lambda: {size: {} for size in sizes})
    for one, times in measured.items():
        row = _label(one if by_inputs else evolve(one, inputs=first.inputs), first)
        for column, time in times.items():
            found[row, column][one.num_reqs][one.inputs] = time
    cells = {}
    for place, by_size in found.items():
        texts = [_slowest(times, show) for times in by_size.values()]
        cells[place] = "/".join(texts if len({*texts}) > 1 else texts[:1])
    return f"{title} R = {'/'.join(map(str, sizes))}", Table.of("", cells)


def _slowest(times: Times, show: Show) -> str:
    """The longest time and, if the inputs matter, those that took it."""
    if not times:
        return "–"
    inputs, time = max(times.items(), key=lambda one: math.inf if one[1] is None else one[1])
    text = NOT_AVAILABLE if time is None else show(time)
    return f"{text} {inputs}" if len({*times.values()}) > 1 else text


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
    drawn = Picture("requests", f"µs, {_call(run)}", logarithmic=True)
    for line in measured:
        panel = _label(line.workload, measured[0].workload)
        for place, (name, time) in enumerate(_cold(line).items()):
            dots = {"color": f"C{place}", "marker": "o", "markersize": 4}
            look = BASELINE if name == FLOOR else dots
            drawn.add(panel, name, look, (line.workload.num_reqs, time))
    return drawn
