"""The tables of a run: every cell for the terminal, and the most important for documents."""

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
    """For the documentation: the machine, cold and eager times, and the slowest inputs."""
    return "\n".join((_about(run), *_tables(run)))


def _about(run: Run) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    lines = (*run.lines, *run.worst)
    first, cells = lines[0].workload, [cell for line in lines for cell in line.cells]
    bandwidth = ""
    if run.bandwidth is not None:
        bandwidth = f" A plain read reaches {run.bandwidth / 1e12:.2f} TB/s."
    num_checked = sum(cell.num_checked for cell in cells)
    num_different = sum(cell.num_different for cell in cells)
    return (
        f"{run.date}; {machine}. Unless a row says otherwise, V = {first.vocab_size:,}, K = "
        f"{first.num_spec_tokens}, {first.dtype} and {first.inputs} inputs.{bandwidth} Of "
        f"{num_checked:,} requests checked, {num_different:,} differ from the reference.\n"
    )


def _tables(run: Run) -> Iterator[str]:
    if run.lines:
        for title, render, floor in (
            ("Graph replay, cold cache, µs", _cold, "cold_floor"),
            ("Eager call to its synchronised result, µs", _eager, None),
        ):
            yield f"**{title}**\n\n{_by_size(run.lines, render, floor).as_markdown()}"
    if run.worst:
        kinds = ", ".join(dict.fromkeys(line.workload.inputs for line in run.worst))
        shown = " / ".join(("floor", *(cell.backend for cell in run.worst[0].cells)))
        title = f"The slowest of {kinds} inputs, graph replay, cold cache, µs: {shown}"
        yield f"**{title}**\n\n{_worst_in_short(run.worst).as_markdown()}"


Found = Sequence[tuple[Cell, Line]]
"""One backend's cells of a row and a batch size: one, or one for each kind of inputs."""
Render = Callable[[Found], str]


def _by_size(
    lines: Sequence[Line], render: Render, floor: str | None = None, shown: Sequence[str] = SHAPE
) -> Table:
    """Rows for each workload, one a backend, and a column for each batch size."""
    sizes, groups = _grouped(lines, shown)
    rows = []
    for name, found in groups.items():
        of_name = []
        if floor is not None:
            floors = (getattr(group[0], floor) if group else None for group in found)
            of_name.append(["", "floor", *map(number, floors)])
        for place, cell in enumerate(lines[0].cells):
            cells = [[(line.cells[place], line) for line in group] for group in found]
            of_name.append(["", cell.backend, *(render(one) if one else "–" for one in cells)])
        of_name[0][0] = name
        rows += of_name
    return Table(head=["", "", *(f"R = {size}" for size in sizes)], rows=rows, num_names=2)


def _grouped(
    lines: Sequence[Line], shown: Sequence[str]
) -> tuple[Sequence[int], dict[str, list[list[Line]]]]:
    """All batch sizes, and the lines of each workload by batch size."""
    sizes = list(dict.fromkeys(line.workload.num_reqs for line in lines))
    groups: dict[str, list[list[Line]]] = {}
    for line in lines:
        of_name = groups.setdefault(label(line, lines, shown), [[] for _ in sizes])
        of_name[sizes.index(line.workload.num_reqs)].append(line)
    return sizes, groups


def worst_table(lines: Sequence[Line]) -> Table:
    """The slowest inputs of each row and batch size, and how they compare with the floor."""
    return _by_size(lines, _worst, "cold_floor", SHAPE_WITHOUT_INPUTS)


def _worst_in_short(lines: Sequence[Line]) -> Table:
    """One row for each workload, the times of all backends in a cell."""
    sizes, groups = _grouped(lines, SHAPE_WITHOUT_INPUTS)
    rows = [[name, *(_slowest_of_all(group) for group in found)] for name, found in groups.items()]
    return Table(head=["", *(f"R = {size}" for size in sizes)], rows=rows)


def _slowest_of_all(group: Sequence[Line]) -> str:
    """The floor, and each backend's slowest time."""
    if not group:
        return "–"
    times = zip(*([cell.cold for cell in line.cells] for line in group), strict=True)
    slowest = (None if None in one else max(t for t in one if t is not None) for one in times)
    return " / ".join(map(number, (group[0].cold_floor, *slowest)))


def _worst(found: Found) -> str:
    for cell, line in found:
        if cell.cold is None:
            return f"{NOT_AVAILABLE} ({line.workload.inputs})"
    cell, line = max(found, key=lambda one: one[0].cold or 0.0)
    return f"{number(cell.cold)} ({ratio(cell.cold, line.cold_floor)} ×, {line.workload.inputs})"


def _cold(found: Found) -> str:
    ((cell, _),) = found
    return NOT_AVAILABLE if cell.times is None else number(cell.cold)


def _eager(found: Found) -> str:
    ((cell, _),) = found
    return number(cell.median("eager_cold"))


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
