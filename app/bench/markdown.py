"""Tables of a benchmark for documents."""

from .results import BenchResults
from .rows import sections
from .table import Table
from .tables import comparable, compared, longest, table_name


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
        head = ["", *(run.setting.label for run in runs)]
        table = Table(head=head, rows=compared(shown, runs, runs[0]))
        parts += [f"{table_name(runs[0]).capitalize()}:\n", table.as_markdown()]
    return "\n".join(parts)
