"""The results of `acceptor tune`: the measured run, its predictions, and their checks."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from ..bench.files import read_record
from ..bench.sweep import Load
from .goodput import Goodput, Prediction


@frozen(kw_only=True)
class Check:
    """A prediction beside a run of the benchmark.

    Attributes:
        prediction: what the model said.
        measured: tokens per second of the run.
        is_new_length: whether nothing was measured at this K before.
        is_new_concurrency: whether nothing was measured at this concurrency before.
    """

    prediction: Prediction
    measured: float
    is_new_length: bool = False
    is_new_concurrency: bool = False

    @property
    def not_measured(self) -> str:
        """What makes it more than a description of what it was made from; empty if nothing does."""
        if self.is_new_length and self.is_new_concurrency:
            return "both"
        return "K" if self.is_new_length else "concurrency" if self.is_new_concurrency else ""

    @property
    def error(self) -> float:
        """How much too high the prediction was, as a share of what was measured."""
        return self.prediction.tokens_per_second / self.measured - 1


@frozen(kw_only=True)
class TuneResults:
    """All of it.

    Attributes:
        date: of the day, in UTC.
        machine: device and versions.
        models: names of target and draft.
        load: whose requests were served.
        cpu_time: whether all seconds are of processor time.
        policies: name -> what its measured run has shown.
        predictions: for every policy, K and concurrency.
        checks: of some of them; empty unless asked for.
    """

    date: str
    machine: Mapping[str, str]
    models: Mapping[str, str]
    load: Load
    temperature: float
    backend: str
    cpu_time: bool
    policies: Mapping[str, Goodput]
    predictions: tuple[Prediction, ...]
    checks: tuple[Check, ...] = ()

    @property
    def concurrencies(self) -> list[int]:
        """Those that were predicted, rising."""
        return sorted({one.concurrency for one in self.predictions})


def read_results(path: Path) -> TuneResults:
    """What `acceptor tune --json` wrote.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    return read_record(path, TuneResults, "tune")
