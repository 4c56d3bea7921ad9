"""A benchmark's tables on a terminal: runs side by side, each compared with the first.

Where they are wider than the terminal, they go on below, the first run repeated. This module
refuses to compute figures.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from attrs import frozen
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import Row, Section, sections

_DIFFERENCE_WIDTH = 10
_PADDING = 2


@frozen(eq=False)
class Column:
    """One run's figures, or the names of the rows; empty where a section begins."""

    head: str
    cells: Sequence[Text]

    @property
    def width(self) -> int:
        """In characters, with the space around."""
        return max(len(self.head), *(cell.cell_len for cell in self.cells)) + _PADDING


def print_results(console: Console, results: BenchResults) -> None:
    """Print everything that a benchmark measured."""
    for runs in comparable(results.runs):
        temperature, backend = runs[0].setting.table
        heading = f"temperature {temperature:g}, backend {backend}"
        console.print(Text(f"\n{heading}", style="bold"))
        for table in _tables(console.width, runs):
            console.print(table)
        if len(runs[0].figures.acceptance_by_category) > 1 and any(map(_drafts, runs)):
            console.print(_category_table(runs))


def comparable(runs: Sequence[BenchRun]) -> Iterator[Sequence[BenchRun]]:
    """The runs that stand in one table: they differ in policy and K alone."""
    ordered = sorted(runs, key=lambda run: run.setting.table)
    for _, members in groupby(ordered, key=lambda run: run.setting.table):
        yield list(members)


def _tables(width: int, runs: Sequence[BenchRun]) -> Iterator[Table]:
    num_spec_tokens = max(len(run.figures.acceptance.acceptance_rate_per_pos) for run in runs)
    shown = list(sections(num_spec_tokens))
    names, first = Column("", list(_names(shown))), _column(runs[0], None, shown)
    others = [_column(run, runs[0], shown) for run in runs[1:]]
    left = width - names.width - first.width
    widest = max((column.width for column in others), default=1)
    count = max(left // widest, 1)
    for start in range(0, max(len(others), 1), count):
        yield _table([names, first, *others[start : start + count]])


def _names(shown: Iterable[Section]) -> Iterator[Text]:
    for section in shown:
        yield Text(section.title, style="bold")
        yield from (Text(f"  {row.name}") for row in section.rows)


def _column(run: BenchRun, base: BenchRun | None, shown: Iterable[Section]) -> Column:
    cells: list[Text] = []
    for section in shown:
        cells.append(Text())
        cells += [_cell(row, run, base) for row in section.rows]
    return Column(run.setting.label, cells)


def _cell(row: Row, run: BenchRun, base: BenchRun | None) -> Text:
    if base is None:
        return Text(row.text(run.figures))
    difference = row.difference(run.figures, base.figures)
    padded = f"{difference:>{_DIFFERENCE_WIDTH}}"
    return Text.assemble(row.text(run.figures), (padded, _style(row, difference)))


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for place, column in enumerate(columns):
        table.add_column(column.head, justify="right" if place else "left", no_wrap=True)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _style(row: Row, difference: str) -> str:
    if not difference or difference.strip("+-0.% ") == "":
        return "dim"
    rises = difference.startswith("+")
    return "green" if rises is row.more_is_better else "red"


def _drafts(run: BenchRun) -> bool:
    return run.figures.acceptance.num_drafts > 0


def _category_table(runs: Iterable[BenchRun]) -> Table:
    drafting = [run for run in runs if _drafts(run)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("acceptance length by category", no_wrap=True)
    for run in drafting:
        table.add_column(run.setting.label, justify="right")
    for category in sorted(drafting[0].figures.acceptance_by_category):
        lengths = [run.figures.acceptance_by_category[category] for run in drafting]
        table.add_row(f"  {category}", *(f"{one.acceptance_length:.2f}" for one in lengths))
    return table
