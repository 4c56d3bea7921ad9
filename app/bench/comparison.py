"""A benchmark beside an earlier one, setting by setting: differences, and what was not the same."""

from collections.abc import Iterator

from attrs import asdict
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .results import BenchResults, BenchRun
from .rows import sections
from .tables import as_table, figures_column, names_column


def print_comparison(
    console: Console, now: BenchResults, before: BenchResults, *, cpu_time: bool = False
) -> None:
    """Print every setting that both have measured, and what else is different."""
    console.print(Text(f"\ncompared with {before.date}", style="bold"))
    for difference in differences(now, before):
        console.print(f"  not the same: {difference}")
    earlier = {run.setting: run for run in before.runs}
    for run in now.runs:
        if run.setting in earlier:
            console.print("", _table(run, earlier[run.setting], cpu_time=cpu_time), sep="\n")
        else:
            console.print(f"  not measured before: {_name(run)}")


def differences(now: BenchResults, before: BenchResults) -> Iterator[str]:
    """Why figures may differ beside the program: load, sampling, models, machine."""
    for mine, theirs in (
        (asdict(now.load), asdict(before.load)),
        (now.sampling, before.sampling),
        (now.models, before.models),
        (now.machine, before.machine),
    ):
        for name in dict.fromkeys((*theirs, *mine)):
            if mine.get(name) != theirs.get(name):
                yield f"{name}: {_shown(theirs.get(name))} before, {_shown(mine.get(name))} now"


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)


def _name(run: BenchRun) -> str:
    temperature, backend = run.setting.table
    return f"{run.setting.label}, temperature {temperature:g}, backend {backend}"


def _table(run: BenchRun, earlier: BenchRun, *, cpu_time: bool) -> Table:
    shown = list(sections(run.setting.num_spec_tokens, cpu_time=cpu_time))
    return as_table(
        [
            names_column(shown, _name(run)),
            figures_column(earlier, None, shown, "before"),
            figures_column(run, earlier, shown, "now"),
        ]
    )
