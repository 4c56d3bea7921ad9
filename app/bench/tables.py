"""A benchmark's tables: runs side by side, each compared with the first or with an earlier run."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from attrs import asdict
from rich.console import Console
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import Row, Section, sections
from .table import Cell, Table

_DIFFERENCE_WIDTH = 8


def print_results(console: Console, results: BenchResults, *, cpu_time: bool = False) -> None:
    """Print everything that a benchmark measured, or all but what goes by the wall's clock.

    Columns that are wider than the terminal go on below, the first run repeated if it fits.
    """
    for runs in comparable(results.runs):
        console.print(Text(f"\n{table_name(runs[0])}", style="bold"))
        heads = [run.setting.label.replace(", ", "\n") for run in runs]
        shown = sections(_longest(runs), cpu_time=cpu_time)
        table = Table(head=["", *heads], rows=_rows(shown, runs, runs[0]))
        drafting = [run for run in runs if run.figures.acceptance.num_drafts]
        tables = [*table.fitting(console.width, 2)]
        if drafting and len(runs[0].figures.acceptance_by_category) > 1:
            tables += category_table(drafting).fitting(console.width, 1)
        for one in tables:
            console.print(one.as_rich(), "")


def print_comparison(
    console: Console, now: BenchResults, before: BenchResults, *, cpu_time: bool = False
) -> None:
    """Print every setting that both have measured, and what else is different."""
    console.print(Text(f"\ncompared with {before.date}", style="bold"))
    for difference in differences(now, before):
        console.print(f"  not the same: {difference}")
    earlier = {run.setting: run for run in before.runs}
    for run in now.runs:
        name = f"{run.setting.label}, {table_name(run)}"
        if run.setting not in earlier:
            console.print(f"  not measured before: {name}")
            continue
        base = earlier[run.setting]
        shown = sections(run.setting.num_spec_tokens, cpu_time=cpu_time)
        rows = _rows(shown, [base, run], base)
        console.print("", Table(head=[name, "before", "now"], rows=rows).as_rich(), sep="\n")


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
        shown = [row for _, rows in sections(_longest(runs), cpu_time=cpu_time) for row in rows]
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


def comparable(runs: Sequence[BenchRun]) -> Iterator[Sequence[BenchRun]]:
    """The runs that stand in one table: they differ in policy and K alone."""
    ordered = sorted(runs, key=lambda run: run.setting.table)
    for _, members in groupby(ordered, key=lambda run: run.setting.table):
        yield list(members)


def differences(now: BenchResults, before: BenchResults) -> Iterator[str]:
    """Why figures may differ beside the program: load, sampling, models, machine."""
    for mine, theirs in (
        (asdict(now.load), asdict(before.load)),
        (now.sampling, before.sampling),
        (now.models, before.models),
        (now.machine, before.machine),
    ):
        for name in dict.fromkeys((*theirs, *mine)):
            values = (one.get(name) for one in (theirs, mine))
            old, new = ("not set" if value is None else value for value in values)
            if old != new:
                yield f"{name}: {old} before, {new} now"


def category_table(runs: Sequence[BenchRun]) -> Table:
    """Acceptance lengths by category of prompts."""
    rows = [
        [f"  {category}", *(f"{_by_category(run, category):.2f}" for run in runs)]
        for category in sorted(runs[0].figures.acceptance_by_category)
    ]
    heads = (run.setting.label.replace(", ", "\n") for run in runs)
    return Table(head=["acceptance length by category", *heads], rows=rows)


def _by_category(run: BenchRun, category: str) -> float:
    return run.figures.acceptance_by_category[category].acceptance_length


def _rows(
    shown: Iterable[Section], runs: Sequence[BenchRun], base: BenchRun
) -> list[Sequence[Cell]]:
    """Sections below their titles."""
    rows: list[Sequence[Cell]] = []
    for title, members in shown:
        rows.append([Text(title, style="bold"), *("" for _ in runs)])
        for row in members:
            cells = (_cell(row, run, None if run is base else base) for run in runs)
            rows.append([f"  {row.name}", *cells])
    return rows


def _cell(row: Row, run: BenchRun, base: BenchRun | None) -> Text:
    if base is None:
        return Text(row.text(run.figures))
    difference = row.difference(run.figures, base.figures)
    shown = f" {difference:>{_DIFFERENCE_WIDTH}}", row.style(difference)
    return Text.assemble(row.text(run.figures), shown)


def table_name(run: BenchRun) -> str:
    """What the runs of a table share."""
    temperature, backend = run.setting.table
    return f"temperature {temperature:g}, backend {backend}"


def _longest(runs: Iterable[BenchRun]) -> int:
    return max(run.setting.num_spec_tokens for run in runs)
