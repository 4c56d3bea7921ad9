"""Tables of a benchmark for documents."""

from collections.abc import Iterable, Iterator, Sequence

from .results import BenchResults, BenchRun
from .rows import Row, sections
from .tables import comparable


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_markdown(results: BenchResults, *, cpu_time: bool = False) -> str:
    """Where and what was measured, and the tables of the terminal."""
    return "\n".join(_parts(results, cpu_time=cpu_time))


def _parts(results: BenchResults, *, cpu_time: bool) -> Iterator[str]:
    machine, load = results.machine, results.load
    yield (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}; "
        f"{load.num_requests} requests of {load.output_len} tokens ({load.prompts} prompts), at "
        f"most {load.max_concurrency} at a time.\n"
    )
    for runs in comparable(results.runs):
        temperature, backend = runs[0].setting.table
        yield f"Temperature {temperature:g}, backend {backend}:\n"
        longest = max(run.setting.num_spec_tokens for run in runs)
        shown = sections(longest, cpu_time=cpu_time)
        yield side_by_side(runs, [row.name for section in shown for row in section.rows])


def side_by_side(runs: Sequence[BenchRun], names: Iterable[str]) -> str:
    """Some rows of the terminal's tables: runs as columns, each compared with the first."""
    longest = max(run.setting.num_spec_tokens for run in runs)
    known = {row.name: row for section in sections(longest) for row in section.rows}
    base, *others = runs
    head = ["", base.setting.label, *(run.setting.label for run in others)]
    body = [
        [name, known[name].text(base.figures), *(_cell(known[name], run, base) for run in others)]
        for name in names
    ]
    return table(head, body)


def _cell(row: Row, run: BenchRun, base: BenchRun) -> str:
    difference = row.difference(run.figures, base.figures)
    text = row.text(run.figures)
    return f"{text} ({difference})" if difference else text
