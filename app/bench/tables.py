"""A benchmark's tables: rows of figures, with runs side by side and each compared with the first.

Names are the field's, so that tables of several tools can be compared.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

from attrs import frozen
from rich.console import Console
from rich.text import Text

from .figures import Acceptance, Figures
from .latency import NAMES
from .results import BenchResults, BenchRun
from .table import Cell, Table

Value = Callable[[Figures], float | None]
Form = Callable[[str], str]
"""Turns a difference into what stands behind a value."""


@frozen
class Row:
    """One figure.

    Attributes:
        value: None if a run has none.
        digits: after the decimal point; from 1,000 on at most one.
        differs: whether a difference to another run is meaningful.
        in_points: whether differences are in points, as those of a percentage are.
        by_the_wall: whether other work on the machine changes it.
    """

    name: str
    value: Value
    digits: int = 2
    differs: bool = True
    in_points: bool = False
    more_is_better: bool = True
    by_the_wall: bool = False

    def text(self, run: BenchRun) -> str:
        """A run's value as text."""
        value = self.value(run.figures)
        if value is None:
            return "–"
        digits = min(self.digits, 1) if abs(value) >= 1000 else self.digits
        return f"{value:,.{digits}f}"

    def cells(self, runs: Sequence[BenchRun], form: Form = " {:>8}".format) -> list[Cell]:
        """The name and the values; all runs but the first show their difference from it."""
        first, *others = runs
        cells: list[Cell] = [f"  {self.name}", self.text(first)]
        for run in others:
            difference = self._difference(self.value(run.figures), self.value(first.figures))
            is_equal = difference.strip("+-0.%") == ""
            is_better = difference.startswith("+") is self.more_is_better
            style = "dim" if is_equal else "green" if is_better else "red"
            cells.append(Text.assemble(self.text(run), (form(difference), style)))
        return cells

    def _difference(self, value: float | None, before: float | None) -> str:
        if not self.differs or value is None or before is None:
            return ""
        if self.in_points:
            return f"{value - before:+.1f}"
        return f"{value / before - 1:+.1%}" if before else ""


_count, _by_the_wall = partial(Row, digits=0, differs=False), partial(Row, by_the_wall=True)
_time = partial(_by_the_wall, more_is_better=False)
_REQUESTS = (
    _count("successful requests", lambda f: f.num_successful),
    _count("failed requests", lambda f: f.num_failed),
    _time("duration (s)", lambda f: f.duration),
    Row("processor time (s)", lambda f: f.cpu_seconds or None, more_is_better=False),
    Row("output tokens per CPU second", lambda f: f.tokens_per_cpu_second),
    _count("input tokens", lambda f: f.num_input_tokens),
    _count("generated tokens", lambda f: f.num_output_tokens),
    _by_the_wall("request throughput (req/s)", lambda f: f.request_throughput),
    _by_the_wall("output token throughput (tok/s)", lambda f: f.output_throughput),
    _by_the_wall("peak output throughput (tok/s)", lambda f: f.peak_output_throughput),
    _count("peak concurrent requests", lambda f: f.peak_concurrency),
    _by_the_wall("total token throughput (tok/s)", lambda f: f.total_throughput),
)


def _of_drafts(value: Callable[[Acceptance], float]) -> Value:
    return lambda f: value(f.acceptance) if f.acceptance.num_drafts else None


_ACCEPTANCE = (
    Row("acceptance rate (%)", _of_drafts(lambda a: 100 * a.acceptance_rate), 1, in_points=True),
    Row("acceptance length", _of_drafts(lambda a: a.acceptance_length)),
    _count("drafts", lambda f: f.acceptance.num_drafts),
    _count("draft tokens", lambda f: f.acceptance.num_draft_tokens),
    _count("accepted tokens", lambda f: f.acceptance.num_accepted_tokens),
    _count("final tokens", lambda f: f.acceptance.num_final_tokens),
)

PER_POSITION = "acceptance per position (%)"


def _position(place: int) -> Row:
    def value(figures: Figures) -> float | None:
        rates = figures.acceptance.acceptance_rate_per_pos
        return 100 * rates[place] if place < len(rates) else None

    return Row(f"position {place}", value, 1, in_points=True)


def sections(num_spec_tokens: int, *, cpu_time: bool = False) -> dict[str, list[Row]]:
    """All rows below their titles; with `cpu_time` only those that the wall clock leaves alone."""
    shown = {"requests and tokens": [*_REQUESTS]}
    for name, title in NAMES.items():
        shown[title] = [
            _time(f"{what} {name.upper()} (ms)", attrgetter(f"{name}.{what.lower()}"))
            for what in ("mean", "median", "P99")
        ]
    if num_spec_tokens:
        shown["speculative decoding"] = [*_ACCEPTANCE]
        shown[PER_POSITION] = [*map(_position, range(num_spec_tokens))]
    if cpu_time:
        shown = {t: [row for row in rows if not row.by_the_wall] for t, rows in shown.items()}
    return {title: rows for title, rows in shown.items() if rows}


def side_by_side(head: Sequence[str], runs: Sequence[BenchRun], *, cpu_time: bool) -> Table:
    """A column for each run below this head, and sections of rows below their titles."""
    rows: list[Sequence[Cell]] = []
    for title, members in sections(longest(runs), cpu_time=cpu_time).items():
        rows.append([Text(title, style="bold"), *("" for _ in runs)])
        rows += [row.cells(runs) for row in members]
    return Table(head=head, rows=rows)


def print_results(console: Console, results: BenchResults, *, cpu_time: bool = False) -> None:
    """Print all that a benchmark measured, perhaps without figures of wall-clock time."""
    for group in comparable(results.runs):
        console.print(Text(f"\n{table_name(group[0])}", style="bold"))
        tables = [side_by_side(["", *_heads(group)], group, cpu_time=cpu_time)]
        drafting = [run for run in group if run.figures.acceptance.num_drafts]
        if drafting and len(group[0].figures.acceptance_by_category) > 1:
            tables.append(_by_category(drafting))
        for table in tables:
            for part in table.fitting(console):
                console.print(part, "")


def _heads(runs: Iterable[BenchRun]) -> list[str]:
    return [run.setting.label.replace(", ", "\n") for run in runs]


def comparable(runs: Iterable[BenchRun]) -> list[list[BenchRun]]:
    """Groups of runs for one table: they differ in policy and K alone."""
    table = attrgetter("setting.table")
    return [[*members] for _, members in groupby(sorted(runs, key=table), table)]


def _by_category(runs: Sequence[BenchRun]) -> Table:
    measured = [run.figures.acceptance_by_category for run in runs]
    rows = [
        [f"  {category}", *(f"{known[category].acceptance_length:.2f}" for known in measured)]
        for category in sorted(measured[0])
    ]
    return Table(head=["acceptance length by category", *_heads(runs)], rows=rows)


def table_name(run: BenchRun) -> str:
    """The name of a table: the values that its runs share."""
    at_once, temperature, backend = run.setting.table
    name = f"temperature {temperature:g}, backend {backend}"
    return f"{name}, at most {at_once} at a time" if at_once else name


def longest(runs: Iterable[BenchRun]) -> int:
    """The largest K."""
    return max(run.setting.num_spec_tokens for run in runs)
