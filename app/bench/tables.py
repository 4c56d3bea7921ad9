"""A benchmark's tables on a terminal: runs side by side, each compared with the first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import Row, Section, sections
from .table import Cell, Table

MAX_WIDTH = 10_000
"""The most columns of a table; rich measures nothing beyond a given width."""

_IN_COLUMN = " {:>8}".format


def print_results(console: Console, results: BenchResults, *, cpu_time: bool = False) -> None:
    """Print all that a benchmark measured, perhaps without figures of wall-clock time.

    Columns beyond the terminal's width continue below, with the first run repeated if it fits.
    """

    def figures(runs: Sequence[BenchRun]) -> Table:
        shown = sections(longest(group), cpu_time=cpu_time)
        return Table(head=["", *_heads(runs)], rows=titled_rows(shown, runs, group[0]))

    for group in comparable(results.runs):
        console.print(Text(f"\n{table_name(group[0])}", style="bold"))
        tables = [*_fitting(console, figures, group)]
        drafting = [run for run in group if run.figures.acceptance.num_drafts]
        if drafting and len(group[0].figures.acceptance_by_category) > 1:
            tables += _fitting(console, category_table, drafting)
        for one in tables:
            console.print(one.as_rich(), "")


def _fitting(
    console: Console, table_of: Callable[[Sequence[BenchRun]], Table], runs: Sequence[BenchRun]
) -> Iterator[Table]:
    """Split runs into tables that fit the console's width."""
    anything = console.options.update(width=MAX_WIDTH)

    def fits(some: Sequence[BenchRun]) -> bool:
        table = table_of(some).as_rich()
        return console.measure(table, options=anything).maximum <= console.width

    left = list(runs)
    while left:
        count = next((count for count in range(len(left), 1, -1) if fits(left[:count])), 1)
        yield table_of(left[:count])
        left = left[count:]
        if left and fits([runs[0], left[0]]):
            left.insert(0, runs[0])


def _heads(runs: Iterable[BenchRun]) -> list[str]:
    return [run.setting.label.replace(", ", "\n") for run in runs]


def comparable(runs: Sequence[BenchRun]) -> Iterator[Sequence[BenchRun]]:
    """Groups of runs for one table: they differ in policy and K alone."""
    ordered = sorted(runs, key=lambda run: run.setting.table)
    for _, members in groupby(ordered, key=lambda run: run.setting.table):
        yield list(members)


def category_table(runs: Sequence[BenchRun]) -> Table:
    """Acceptance lengths by category of prompts."""
    measured = [run.figures.acceptance_by_category for run in runs]
    rows = [
        [f"  {category}", *(f"{known[category].acceptance_length:.2f}" for known in measured)]
        for category in sorted(measured[0])
    ]
    return Table(head=["acceptance length by category", *_heads(runs)], rows=rows)


def titled_rows(
    shown: Iterable[Section], runs: Sequence[BenchRun], base: BenchRun
) -> list[Sequence[Cell]]:
    """Sections of rows below their titles."""
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
    """Rows of figures; all runs but the base show their difference from it, in this form."""
    return [[f"  {row.name}", *(_cell(row, run, base, form) for run in runs)] for row in rows]


def _cell(row: Row, run: BenchRun, base: BenchRun, form: Callable[[str], str]) -> Text:
    text = Text(row.text(run.figures))
    if run is not base:
        difference = row.difference(run.figures, base.figures)
        text.append(form(difference), row.style(difference))
    return text


def table_name(run: BenchRun) -> str:
    """The name of a table: the values that its runs share."""
    at_once, temperature, backend = run.setting.table
    name = f"temperature {temperature:g}, backend {backend}"
    return f"{name}, at most {at_once} at a time" if at_once else name


def longest(runs: Iterable[BenchRun]) -> int:
    """The largest K."""
    return max(run.setting.num_spec_tokens for run in runs)
