"""The tables of a run: every cell for the terminal, and one table per figure for documents."""

from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from ..table import Table
from .results import Cell, Line, Run

NOT_AVAILABLE = "not available"
_COLUMNS = (
    "R",
    "workload",
    "backend",
    "graph cold",
    "warm",
    "eager cold",
    "warm",
    "floor",
    "× floor",
    "× first",
    "MB",
    "of bandwidth",
    "accepted",
    "differ",
)
SHAPE_WITHOUT_INPUTS = ("num_spec_tokens", "vocab_size", "dtype")
SHAPE = (*SHAPE_WITHOUT_INPUTS, "inputs")
_KINDS_OF_TIME = ("graph_cold", "graph_warm", "eager_cold", "eager_warm")


def terminal_tables(run: Run) -> Iterator[tuple[str, Table]]:
    """Every cell in microseconds, and the worst inputs of each row, with a caption each."""
    bandwidth = "" if run.bandwidth is None else f"; plain read {run.bandwidth / 1e12:.2f} TB/s"
    where = f"{run.machine['device']}, {run.date}{bandwidth}; {run.seconds:.0f} s"
    if run.lines:
        rows = [_row(cell, line, run) for line in run.lines for cell in line.cells]
        caption = f"{where}\nmedians in µs; floor: one read of what the rule needs"
        yield caption, Table(head=_COLUMNS, rows=rows, num_names=3)
    if run.worst:
        yield f"{where}\nworst inputs, cold cache, µs", worst_table(run.worst)


def _row(cell: Cell, line: Line, run: Run) -> list[str | Text]:
    workload, floor = line.workload, number(line.cold_floor)
    names = [str(workload.num_reqs), label(line, run.lines), cell.backend]
    if cell.times is None:
        missing = Text(NOT_AVAILABLE, style="red")
        return [*names, missing, "", "", "", floor, "", "", "", "", "", cell.problem]
    share = "–"
    if cell.cold is not None and run.bandwidth is not None:
        share = f"{workload.num_bytes / (cell.cold * 1e-6) / run.bandwidth:.0%}"
    return [
        *names,
        *(number(cell.median(name)) for name in _KINDS_OF_TIME),
        floor,
        ratio(cell.cold, line.cold_floor),
        ratio(cell.cold, line.cells[0].cold),
        f"{workload.num_bytes / 1e6:.1f}",
        share,
        accepted(cell, line),
        f"{cell.num_different} of {cell.num_checked}" if cell.num_checked else "–",
    ]


def markdown(run: Run) -> str:
    """For the documentation: the machine, then one table for each kind of figure."""
    return "\n".join((_about(run), *_tables(run)))


def _about(run: Run) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    first = (run.lines or run.worst)[0].workload
    bandwidth = ""
    if run.bandwidth is not None:
        bandwidth = f" A plain read reaches {run.bandwidth / 1e12:.2f} TB/s."
    return (
        f"{run.date}; {machine}. Unless a row says otherwise, V = {first.vocab_size:,}, K = "
        f"{first.num_spec_tokens}, {first.dtype} and {first.inputs} inputs.{bandwidth} "
        f"{_differences(run)}\n"
    )


def _differences(run: Run) -> str:
    cells = [cell for line in (*run.lines, *run.worst) for cell in line.cells]
    checked, different = (
        sum(getattr(cell, name) for cell in cells) for name in ("num_checked", "num_different")
    )
    if not checked:
        return "Tokens were not checked."
    return f"Of {checked:,} requests checked, {different:,} differ from the reference."


def _tables(run: Run) -> Iterator[str]:
    if run.lines:
        for title, render, floor in (
            ("Graph replay, cold cache, µs", _cold, "cold_floor"),
            ("The same over the floor", _over_floor, None),
            ("Graph replay, warm cache, µs", _time("graph_warm"), "warm_floor"),
            ("Eager call to its synchronised result, µs", _time("eager_cold"), None),
            ("Accepted draft tokens per request", _accepted, None),
        ):
            yield f"**{title}**\n\n{_by_size(run.lines, render, floor).as_markdown()}"
    if run.worst:
        kinds = ", ".join(dict.fromkeys(line.workload.inputs for line in run.worst))
        title = f"The slowest of {kinds} inputs, graph replay, cold cache, µs (over the floor)"
        yield f"**{title}**\n\n{worst_table(run.worst).as_markdown()}"


Found = Sequence[tuple[Cell, Line]]
"""One backend's cells of a row and a batch size: one, or one for each kind of inputs."""
Render = Callable[[Found], str]


def _by_size(
    lines: Sequence[Line], render: Render, floor: str | None = None, shown: Sequence[str] = SHAPE
) -> Table:
    """A row for each workload and backend, a column for each batch size."""
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        key = label(line, lines, shown), line.workload.num_reqs
        groups.setdefault(key, []).append(line)
    names, sizes = (tuple(dict.fromkeys(keys)) for keys in zip(*groups, strict=True))
    rows = []
    for name in names:
        found = [groups.get((name, size), []) for size in sizes]
        if floor is not None:
            floors = (getattr(group[0], floor) if group else None for group in found)
            rows.append([name, "floor", *map(number, floors)])
        for place, cell in enumerate(lines[0].cells):
            cells = [[(line.cells[place], line) for line in group] for group in found]
            rows.append([name, cell.backend, *(render(one) if one else "–" for one in cells)])
    return Table(head=["", "", *(f"R = {size}" for size in sizes)], rows=rows, num_names=2)


def worst_table(lines: Sequence[Line]) -> Table:
    """The slowest inputs of each row and batch size, and how they compare with the floor."""
    return _by_size(lines, _worst, "cold_floor", SHAPE_WITHOUT_INPUTS)


def _worst(found: Found) -> str:
    for cell, line in found:
        if cell.cold is None:
            return f"{NOT_AVAILABLE} ({line.workload.inputs})"
    cell, line = max(found, key=lambda one: one[0].cold or 0.0)
    return f"{number(cell.cold)} ({ratio(cell.cold, line.cold_floor)} ×, {line.workload.inputs})"


def _cold(found: Found) -> str:
    ((cell, _),) = found
    return NOT_AVAILABLE if cell.times is None else number(cell.cold)


def _time(name: str) -> Render:
    return lambda found: number(found[0][0].median(name))


def _over_floor(found: Found) -> str:
    ((cell, line),) = found
    return ratio(cell.cold, line.cold_floor)


def _accepted(found: Found) -> str:
    ((cell, line),) = found
    return accepted(cell, line)


def label(line: Line, lines: Sequence[Line], shown: Sequence[str] = SHAPE) -> str:
    """Policy and parameters, and what of the shape is not the first line's."""
    first, workload = lines[0].workload, line.workload
    shape = {
        "num_spec_tokens": f"K = {workload.num_spec_tokens}",
        "vocab_size": f"V = {workload.vocab_size:,}",
        "dtype": workload.dtype,
        "inputs": f"{workload.inputs} inputs",
    }
    others = (name for name in shown if getattr(workload, name) != getattr(first, name))
    return ", ".join((workload.label, *(shape[name] for name in others)))


def accepted(cell: Cell, line: Line) -> str:
    """Draft tokens that survived, of how many."""
    if cell.mean_accepted is None:
        return "–"
    return f"{cell.mean_accepted:.2f} of {line.workload.num_spec_tokens}"


def number(value: float | None) -> str:
    """Three digits or one decimal, whichever is more."""
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio(above: float | None, below: float | None) -> str:
    """Two decimals."""
    return f"{above / below:.2f}" if above is not None and below else "–"
