"""A benchmark beside an earlier one, setting by setting.

This module refuses to judge: it prints differences, and says what was not the same.
"""

from collections.abc import Iterator

from attrs import asdict
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import ACCEPTANCE, LATENCIES, REQUESTS, Row

ROWS = tuple(row for section in (REQUESTS, *LATENCIES, ACCEPTANCE) for row in section.rows)


def print_comparison(console: Console, now: BenchResults, before: BenchResults) -> None:
    """Print every setting that both have measured, and what else is different."""
    console.print(Text(f"\ncompared with {before.date}", style="bold"))
    for difference in differences(now, before):
        console.print(f"  not the same: {difference}")
    earlier = {run.setting: run for run in before.runs}
    for run in now.runs:
        if run.setting in earlier:
            console.print(_table(run, earlier[run.setting]))
        else:
            console.print(f"  not measured before: {_name(run)}")


def differences(now: BenchResults, before: BenchResults) -> Iterator[str]:
    """Why figures may differ beside the program: load, models, machine."""
    for mine, theirs in (
        (asdict(now.load), asdict(before.load)),
        (now.models, before.models),
        (now.machine, before.machine),
    ):
        for name in dict.fromkeys((*theirs, *mine)):
            if mine.get(name) != theirs.get(name):
                yield f"{name}: {theirs.get(name)} before, {mine.get(name)} now"


def _name(run: BenchRun) -> str:
    temperature, backend = run.setting.table
    return f"{run.setting.label}, temperature {temperature:g}, backend {backend}"


def _table(run: BenchRun, earlier: BenchRun) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(_name(run), no_wrap=True)
    for head in ("before", "now", "difference"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in ROWS:
        if row.value(run.figures) is not None:
            table.add_row(*_cells(row, run, earlier))
    return table


def _cells(row: Row, run: BenchRun, earlier: BenchRun) -> tuple[str, ...]:
    difference = row.difference(run.figures, earlier.figures)
    return f"  {row.name}", row.text(earlier.figures), row.text(run.figures), difference
