"""Compares a benchmark with an earlier one, setting by setting."""

from collections.abc import Iterator

from attrs import asdict
from rich.console import Console
from rich.text import Text

from .results import BenchResults
from .tables import side_by_side, table_name


def print_comparison(
    console: Console, now: BenchResults, before: BenchResults, *, cpu_time: bool = False
) -> None:
    """Print every setting that both have measured, and other differences."""
    console.print(Text(f"\ncompared with {before.date}", style="bold"))
    for difference in differences(now, before):
        console.print(f"  not the same: {difference}")
    earlier = {run.setting: run for run in before.runs}
    for run in now.runs:
        name = f"{run.setting.label}, {table_name(run)}"
        if run.setting not in earlier:
            console.print(f"  not measured before: {name}")
            continue
        both = earlier[run.setting], run
        table = side_by_side([name, "before", "now"], both, cpu_time=cpu_time)
        console.print("", table.as_rich(), sep="\n")


def differences(now: BenchResults, before: BenchResults) -> Iterator[str]:
    """Reasons other than the program why figures may differ: load, sampling, models, machine."""
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
