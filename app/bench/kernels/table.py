"""The tables of a run: a line on the terminal for each cell, and Markdown by batch size.

It refuses to compute: see `figures`.
"""

from collections.abc import Callable, Iterator

from rich.table import Table

from .figures import Figures, backends, cold_time, label, labels, sizes
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
Render = Callable[[Cell, Line], str]


def terminal_table(run: Run) -> Table:
    """Every cell, in microseconds."""
    table = Table(*_COLUMNS, caption=_caption(run))
    for line in run.lines:
        for cell in line.cells:
            table.add_row(*_terminal_row(cell, line, run))
    return table


def _terminal_row(cell: Cell, line: Line, run: Run) -> Iterator[str]:
    workload = line.workload
    yield from (str(workload.num_reqs), label(line, run), cell.backend)
    if cell.times is None:
        yield from (
            f"[red]{NOT_AVAILABLE}[/red]",
            "",
            "",
            "",
            number(line.cold_floor),
        )
        yield from ("", "", "", cell.problem)
        return
    figures = Figures.of(cell, line, run)
    for name in ("graph_cold", "graph_warm", "eager_cold", "eager_warm"):
        yield number(cell.median(name))
    yield number(line.cold_floor)
    yield ratio(figures.floor_ratio)
    yield ratio(figures.backend_ratio)
    yield f"{workload.num_bytes / 1e6:.1f}"
    yield "–" if figures.share is None else f"{figures.share:.0%}"
    yield accepted(cell, line)
    yield f"{cell.num_different} of {cell.num_checked}" if cell.num_checked else "–"


def markdown(run: Run) -> str:
    """For the documentation: the machine, then one table for each kind of figure."""
    return "\n".join(
        (
            _about(run),
            _by_size(run, "Graph replay, cold cache, µs", _cold, floor="cold_floor"),
            _by_size(run, "The same over the floor", _over_floor(run)),
            _by_size(run, "Graph replay, warm cache, µs", _time("graph_warm"), floor="warm_floor"),
            _by_size(run, "Eager call to its synchronised result, µs", _time("eager_cold")),
            _by_size(run, "Accepted draft tokens per request", accepted),
        )
    )


def _about(run: Run) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    first = run.lines[0].workload
    bandwidth = "not measured" if run.bandwidth is None else f"{run.bandwidth / 1e12:.2f} TB/s"
    return (
        f"{run.date}; {machine}. {first.dtype}; unless a row says otherwise V = "
        f"{first.vocab_size:,} and K = {first.num_spec_tokens}. A plain read reaches {bandwidth}.\n"
    )


def _by_size(run: Run, title: str, render: Render, floor: str | None = None) -> str:
    columns = sizes(run)
    lines = [f"**{title}**\n", f"| | | {' | '.join(f'R = {size}' for size in columns)} |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    known = {(label(line, run), line.workload.num_reqs): line for line in run.lines}
    for name in labels(run):
        of_label = [known.get((name, size)) for size in columns]
        if floor is not None:
            floors = ["–" if line is None else number(getattr(line, floor)) for line in of_label]
            lines.append(f"| {name} | floor | {' | '.join(floors)} |")
        for place, backend in enumerate(backends(run)):
            cells = ["–" if line is None else render(line.cells[place], line) for line in of_label]
            lines.append(f"| {name} | {backend} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cold(cell: Cell, _: Line) -> str:
    return NOT_AVAILABLE if cell.times is None else number(cold_time(cell))


def _time(name: str) -> Render:
    return lambda cell, _: number(cell.median(name))


def _over_floor(run: Run) -> Render:
    return lambda cell, line: ratio(Figures.of(cell, line, run).floor_ratio)


def accepted(cell: Cell, line: Line) -> str:
    """Draft tokens that survived, of how many."""
    if cell.mean_accepted is None:
        return "–"
    return f"{cell.mean_accepted:.2f} of {line.workload.num_spec_tokens}"


def number(value: float | None) -> str:
    """Three digits or one decimal, whichever is more."""
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio(value: float | None) -> str:
    """Two decimals."""
    return "–" if value is None else f"{value:.2f}"


def _caption(run: Run) -> str:
    bandwidth = "" if run.bandwidth is None else f"; plain read {run.bandwidth / 1e12:.2f} TB/s"
    times = "medians in µs; floor: one read of the logits that the rule needs"
    where = f"{run.machine['device']}, {run.date}"
    return f"{where}{bandwidth}\n{times}; {run.seconds:.0f} s"
