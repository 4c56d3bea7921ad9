"""A benchmark's tables on a terminal: runs side by side, each compared with the first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import Row, Section, sections
from .table import Cell, Table

_IN_COLUMN = " {:>8}".format


def print_results(console: Console, results: BenchResults, *, cpu_time: bool = False) -> None:
    """Print everything that a benchmark measured, or all but what goes by the wall's clock.

    Columns beyond the terminal's width continue below, with the first run repeated if it fits.
    """
    for runs in comparable(results.runs):
        console.print(Text(f"\n{table_name(runs[0])}", style="bold"))
        heads = [run.setting.label.replace(", ", "\n") for run in runs]
        shown = sections(longest(runs), cpu_time=cpu_time)
        table = Table(head=["", *heads], rows=titled_rows(shown, runs, runs[0]))
        drafting = [run for run in runs if run.figures.acceptance.num_drafts]
        tables = [*table.fitting(console.width, 2)]
        if drafting and len(runs[0].figures.acceptance_by_category) > 1:
            tables += category_table(drafting).fitting(console.width, 1)
        for one in tables:
            console.print(one.as_rich(), "")


def comparable(runs: Sequence[BenchRun]) -> Iterator[Sequence[BenchRun]]:
    """The runs that stand in one table: they differ in policy and K alone."""
    ordered = sorted(runs, key=lambda run: run.setting.table)
    for _, members in groupby(ordered, key=lambda run: run.setting.table):
        yield list(members)


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


def titled_rows(
    shown: Iterable[Section], runs: Sequence[BenchRun], base: BenchRun
) -> list[Sequence[Cell]]:
    """Sections below their titles."""
    rows: list[Sequence[Cell]] = []
    for title, members in shown:
        rows.append([Text(title, style="bold"), *("" for _ in runs)])
        rows += compared(members, runs, base, _IN_COLUMN)
    return rows


def _in_brackets(difference: str) -> str:
    return f" ({difference})" if difference else ""


def compared(
    rows: Iterable[Row],
    runs: Sequence[BenchRun],
    base: BenchRun,
    form: Callable[[str], str] = _in_brackets,
) -> list[Sequence[Cell]]:
    """Rows of figures; each run but the base with its difference from that, in this form."""
    return [[f"  {row.name}", *(_cell(row, run, base, form) for run in runs)] for row in rows]


def _cell(row: Row, run: BenchRun, base: BenchRun, form: Callable[[str], str]) -> Text:
    text = Text(row.text(run.figures))
    if run is not base:
        difference = row.difference(run.figures, base.figures)
        text.append(form(difference), row.style(difference))
    return text


def table_name(run: BenchRun) -> str:
    """What the runs of a table share."""
    temperature, backend = run.setting.table
    return f"temperature {temperature:g}, backend {backend}"


def longest(runs: Iterable[BenchRun]) -> int:
    """The largest K."""
    return max(run.setting.num_spec_tokens for run in runs)
