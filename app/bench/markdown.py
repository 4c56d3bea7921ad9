"""Tables of a benchmark for documents."""

from .results import BenchResults
from .table import Table
from .tables import PER_POSITION, comparable, longest, sections, table_name


def as_markdown(results: BenchResults, *, cpu_time: bool = False) -> str:
    """The machine, the load, and the terminal's tables; values that are equal in all runs last."""
    machine, load = results.machine, results.load
    about = (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}; "
        f"{load.num_requests} requests of {load.lengths} tokens ({load.prompts} prompts), at "
        f"most {load.max_concurrency} at a time.\n"
    )
    parts = [about]
    for runs in comparable(results.runs):
        titled = sections(longest(runs), cpu_time=cpu_time)
        has_positions = titled.pop(PER_POSITION, None) is not None
        shown = [row for rows in titled.values() for row in rows]
        alike = [row for row in shown if len({row.text(run) for run in runs}) == 1 < len(runs)]
        different = [row for row in shown if row not in alike]
        rows = [row.cells(runs, lambda one: f" ({one})" if one else "") for row in different]
        rates = (run.figures.acceptance.acceptance_rate_per_pos for run in runs)
        texts = ("/".join(f"{100 * rate:.1f}" for rate in of) or "–" for of in rates)
        if has_positions:
            rows.append([PER_POSITION, *texts])
        table = Table(head=["", *(run.setting.label for run in runs)], rows=rows)
        parts += [f"{table_name(runs[0]).capitalize()}:\n", table.as_markdown()]
        if alike:
            values = (f"{row.text(runs[0])} {row.name}" for row in alike)
            parts.append(f"In each column: {', '.join(values)}.\n")
    return "\n".join(parts)
