"""Tables of a benchmark for documents."""

from collections.abc import Iterable, Sequence

from .results import BenchResults, BenchRun
from .rows import Row, sections
from .table import Table
from .tables import comparable, longest, table_name


def as_markdown(results: BenchResults, *, cpu_time: bool = False) -> str:
    """Where and what was measured, and the tables of the terminal."""
    machine, load = results.machine, results.load
    about = (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}; "
        f"{load.num_requests} requests of {load.output_len} tokens ({load.prompts} prompts), at "
        f"most {load.max_concurrency} at a time.\n"
    )
    parts = [about]
    for runs in comparable(results.runs):
        shown = [row for _, rows in sections(longest(runs), cpu_time=cpu_time) for row in rows]
        parts += [f"{table_name(runs[0]).capitalize()}:\n", side_by_side(runs, shown).as_markdown()]
    return "\n".join(parts)


def side_by_side(runs: Sequence[BenchRun], rows: Iterable[Row]) -> Table:
    """Some rows for a document, with runs as columns, each compared with the first."""
    shown = []
    for row in rows:
        base = runs[0].figures
        cells = [row.text(base)]
        for figures in (run.figures for run in runs[1:]):
            difference = row.difference(figures, base)
            cells.append(row.text(figures) + (f" ({difference})" if difference else ""))
        shown.append([row.name, *cells])
    return Table(head=["", *(run.setting.label for run in runs)], rows=shown)
