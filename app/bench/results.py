"""The results of a benchmark: its runs, what they were given to do, where and when."""

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
        figures: of the pass of middle duration.
        rehearsal: seconds that the same load took before it counted, compilations among them; None
            if there was none.
        passes: seconds of every time that the load was served and counted; some records have none.
    """

    setting: Setting
    figures: Figures
    rehearsal: float | None = None
    passes: tuple[float, ...] = ()


@frozen(kw_only=True)
class BenchResults:
    """All runs of one benchmark.

    Attributes:
        date: of the day, in UTC.
        machine: device, versions, and the target's dtype and forward.
        models: names of target and draft.
        load: what every run was given to do.
        runs: in the order of the sweep.
        sampling: what shapes the target's law beside the temperature, where it is not the default.
    """

    date: str
    machine: Mapping[str, str]
    models: Mapping[str, str]
    load: Load
    runs: tuple[BenchRun, ...]
    sampling: Mapping[str, float] = field(factory=dict)


def joined(parts: Sequence[BenchResults]) -> BenchResults:
    """The runs of several benchmarks that differ in what drafts."""
    drafts = [part.models["draft"] for part in parts if "draft" in part.models]
    models = {**parts[0].models, **({"draft": ", ".join(drafts)} if drafts else {})}
    runs = tuple(run for part in parts for run in part.runs)
    return evolve(parts[0], models=models, runs=runs)


def read_results(path: Path) -> BenchResults:
    """What `acceptor bench --json` wrote.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    return read_record(path, BenchResults, "bench")
