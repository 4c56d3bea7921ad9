"""The results of `acceptor tune`: the measured run, and its predictions."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from ..bench.files import read_record, write_record
from ..bench.sweep import Load
from .goodput import Goodput, Prediction


@frozen(kw_only=True)
class TuneResults:
    """All of it.

    Attributes:
        date: of the day, in UTC.
        machine: device and versions.
        models: names of target and draft.
        load: whose requests were served.
        temperature: of all runs.
        backend: what verified.
        cpu_time: whether all seconds are of processor time.
        policies: name -> what its measured run has shown.
        predictions: for every policy, K and concurrency.
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


def write_results(results: TuneResults, path: Path) -> None:
    """Write a file that `read_results` reads.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_record(path, results)
