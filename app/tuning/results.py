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
        prediction: the model's prediction.
        measured: the run's tokens per second.
        is_new_length: whether the model had no measurement at this K.
        is_new_concurrency: whether the model had no measurement at this concurrency.
    """

    prediction: Prediction
    measured: float
    is_new_length: bool = False
    is_new_concurrency: bool = False

    @property
    def not_measured(self) -> str:
        """Which of K and concurrency the model had no measurement of; empty for neither."""
        if self.is_new_length and self.is_new_concurrency:
            return "both"
        return "K" if self.is_new_length else "concurrency" if self.is_new_concurrency else ""

    @property
    def error(self) -> float:
        """By what share of the measured speed the prediction was too high."""
        return self.prediction.tokens_per_second / self.measured - 1


@frozen(kw_only=True)
class TuneResults:
    """All results of a run.

    Attributes:
        date: the day, in UTC.
        machine: device and versions.
        models: names of target and draft.
        load: the load whose requests were served.
        cpu_time: whether all seconds are processor time.
        policies: name -> the model from its measured run.
        predictions: those for every policy, K and concurrency.
        checks: checks of some predictions; empty unless requested.
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
        """The predicted concurrencies, ascending."""
        return sorted({one.concurrency for one in self.predictions})


def read_results(path: Path) -> TuneResults:
    """Read what `acceptor tune --json` wrote.

    Raises:
        ConfigError: the file cannot be read, or is not such a record.
    """
    return read_record(path, TuneResults, "tune")
