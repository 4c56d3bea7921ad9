"""The results of a benchmark: its runs, its load, its machine and date."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import evolve, field, frozen

from .figures import Figures
from .files import read_record
from .sweep import Load, Setting


@frozen
class BenchRun:
    """One setting and its figures.

    Attributes:
        figures: those of the pass with the median duration.
        rehearsal: seconds of serving the same load before, compilation included; None if that was
            not done.
        passes: seconds of each counted pass of the load; some records have none.
    """

    setting: Setting
    figures: Figures
    rehearsal: float | None = None
    passes: tuple[float, ...] = ()


@frozen(kw_only=True)
class BenchResults:
    """All runs of one benchmark, in the order of the sweep.

    Attributes:
        date: the day, in UTC.
        machine: device, versions, and the target's dtype and forward.
        sampling: settings of the target's law other than temperature that are not the default.
    """

    date: str
    machine: Mapping[str, str]
    models: Mapping[str, str]
    load: Load
    runs: tuple[BenchRun, ...]
    sampling: Mapping[str, float] = field(factory=dict)


def joined(parts: Sequence[BenchResults]) -> BenchResults:
    """Join the runs of benchmarks that differ in the drafter."""
    drafts = [part.models["draft"] for part in parts if "draft" in part.models]
    models = {**parts[0].models, **({"draft": ", ".join(drafts)} if drafts else {})}
    return evolve(parts[0], models=models, runs=tuple(run for part in parts for run in part.runs))


def read_results(path: Path) -> BenchResults:
    """Read what `acceptor bench --json` wrote.

    Raises:
        ConfigError: the file cannot be read, or is not such a record.
    """
    return read_record(path, BenchResults, "bench")
