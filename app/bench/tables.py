"""A benchmark's tables on a terminal: runs side by side, each compared with the first.

Tables wider than the terminal continue below, with the first run repeated if it fits.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from attrs import frozen
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import Row, Section, sections

_DIFFERENCE_WIDTH = 8
_PADDING = 3


@frozen(eq=False)
class Column:
    """One run's figures, or the names of the rows; empty where a section begins."""

    head: str
    cells: Sequence[Text]

    @property
    def width(self) -> int:
        """In characters, with the space between columns."""
        heads = map(len, self.head.splitlines())
        return max(*heads, *(cell.cell_len for cell in self.cells), 0) + _PADDING


def print_results(console: Console, results: BenchResults, *, cpu_time: bool = False) -> None:
    """Print everything that a benchmark measured, or all but what goes by the wall's clock."""
    for runs in comparable(results.runs):
        temperature, backend = runs[0].setting.table
        heading = f"temperature {temperature:g}, backend {backend}"
        console.print(Text(f"\n{heading}", style="bold"))
        for table in _tables(console.width, runs, cpu_time=cpu_time):
            console.print(table, "")
        if len(runs[0].figures.acceptance_by_category) > 1 and any(map(_drafts, runs)):
            for table in _category_tables(console.width, runs):
                console.print(table, "")


def comparable(runs: Sequence[BenchRun]) -> Iterator[Sequence[BenchRun]]:
    """The runs that stand in one table: they differ in policy and K alone."""
    ordered = sorted(runs, key=lambda run: run.setting.table)
    for _, members in groupby(ordered, key=lambda run: run.setting.table):
        yield list(members)


def _tables(width: int, runs: Sequence[BenchRun], *, cpu_time: bool) -> Iterator[Table]:
    base = runs[0]
    for group in _groups(width, runs):
        shown = list(sections(_longest(group), cpu_time=cpu_time))
        columns = [figures_column(run, None if run is base else base, shown) for run in group]
        yield as_table([names_column(shown), *columns])


def _groups(width: int, runs: Sequence[BenchRun]) -> Iterator[Sequence[BenchRun]]:
    """As many runs at once as fit, the first one always among them if it leaves room."""
    base, *others = runs
    shown = list(sections(_longest(runs)))
    left = width + _PADDING - names_column(shown).width
    left -= figures_column(base, None, shown).width
    widest = max((figures_column(run, base, shown).width for run in others), default=0)
    if left < widest:
        yield from ([run] for run in runs)
        return
    count = max(left // max(widest, 1), 1)
    for start in range(0, max(len(others), 1), count):
        yield [base, *others[start : start + count]]


def _longest(runs: Iterable[BenchRun]) -> int:
    return max(run.setting.num_spec_tokens for run in runs)


def names_column(shown: Iterable[Section], head: str = "") -> Column:
    """What the rows of sections are called."""
    cells: list[Text] = []
    for section in shown:
        cells.append(Text(section.title, style="bold"))
        cells += [Text(f"  {row.name}") for row in section.rows]
    return Column(head, cells)


def figures_column(
    run: BenchRun, base: BenchRun | None, shown: Iterable[Section], head: str | None = None
) -> Column:
    """One run's figures, with differences where there is another run to compare with."""
    cells: list[Text] = []
    for section in shown:
        cells.append(Text())
        cells += [_cell(row, run, base) for row in section.rows]
    return Column(_head(run) if head is None else head, cells)


def _head(run: BenchRun) -> str:
    """Policy and K, one below the other."""
    return run.setting.label.replace(", ", "\n")


def _cell(row: Row, run: BenchRun, base: BenchRun | None) -> Text:
    if base is None:
        return Text(row.text(run.figures))
    difference = row.difference(run.figures, base.figures)
    padded = f" {difference:>{_DIFFERENCE_WIDTH}}"
    return Text.assemble(row.text(run.figures), (padded, _style(row, difference)))


def as_table(columns: Sequence[Column]) -> Table:
    """Columns side by side, the first one text."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, column in enumerate(columns):
        justify: JustifyMethod = "right" if place else "left"
        table.add_column(column.head, justify=justify, no_wrap=True, vertical="bottom")
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


def _category_tables(width: int, runs: Iterable[BenchRun]) -> Iterator[Table]:
    drafting = [run for run in runs if _drafts(run)]
    categories = sorted(drafting[0].figures.acceptance_by_category)
    names = Column("acceptance length by category", [Text(f"  {name}") for name in categories])
    columns = [_lengths(run, categories) for run in drafting]
    left = width + _PADDING - names.width
    count = max(left // max(column.width for column in columns), 1)
    for start in range(0, len(columns), count):
        yield as_table([names, *columns[start : start + count]])


def _lengths(run: BenchRun, categories: Iterable[str]) -> Column:
    known = run.figures.acceptance_by_category
    cells = [Text(f"{known[category].acceptance_length:.2f}") for category in categories]
    return Column(_head(run), cells)
