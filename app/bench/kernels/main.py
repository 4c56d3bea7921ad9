"""From the command's options to a run, and from a run to files."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import torch
from attrs import field, frozen
from rich.console import Console

from ....backends import BACKENDS
from ....core.errors import InvalidInputError
from ....core.sampling_params import Recipe
from ..files import read_record, write_outputs
from .machine import describe
from .measure import Bench
from .plot import plot
from .results import Line, Run
from .stopwatch import Stopwatch
from .table import NOT_AVAILABLE, markdown, number, terminal_tables
from .workload import HEADLINE, INPUTS, NUM_REQS, WORST, WORST_NUM_REQS, Workload, table_of

WIDTH = 190
COUNT, NUM_SETS, NUM_CHECKED = 60, 4, 4
WORST_COUNT, WORST_NUM_SETS, WORST_NUM_CHECKED = 10, 1, 1
"""The worst table looks for breadth: a case that is missed there is off by far more than noise."""


def _device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError(f"--device: expected cpu where there is no CUDA device, got {name}")
    return device


@frozen(kw_only=True)
class Wanted:
    """The options that say what to measure, by their names.

    Raises:
        InvalidInputError: a backend or device is unknown.
    """

    backends: tuple[str, ...]
    headline: bool
    worst: bool
    only: tuple[str, ...]
    inputs: tuple[str, ...]
    requests: tuple[int, ...]
    spec_tokens: tuple[int, ...]
    vocab_size: tuple[int, ...]
    dtype: str
    policies: tuple[str, ...]
    temperature: float
    min_p: float
    top_k: int
    top_p: float
    repetition_penalty: float
    logit_biases: int
    logprobs: int | None
    device: torch.device = field(converter=_device)
    count: int | None
    sets: int | None
    check: bool

    def __attrs_post_init__(self) -> None:
        for name in self.backends:
            if name not in BACKENDS:
                known = ", ".join(BACKENDS)
                raise InvalidInputError(f"--backend: expected one of {known}, got {name!r}")

    def workloads(self) -> Iterator[Workload]:
        """Every combination, shape by shape; none where only the worst table is wanted."""
        num_reqs, inputs = self.requests or NUM_REQS, self.inputs or ("lm",)
        rows: Sequence[Workload] = ()
        if self.headline:
            rows = HEADLINE
        elif not self.worst:
            rows = tuple(self._rows())
        yield from self._chosen(table_of(rows, num_reqs, inputs))

    def worst_workloads(self) -> Iterator[Workload]:
        """Of the worst table."""
        rows = sorted(WORST, key=lambda row: (row.dtype, row.vocab_size)) if self.worst else ()
        num_reqs, inputs = self.requests or WORST_NUM_REQS, self.inputs or INPUTS
        yield from self._chosen(table_of(rows, num_reqs, inputs))

    @property
    def bench(self) -> Bench:
        """Of most workloads."""
        return Bench(
            backends=self.backends,
            stopwatch=Stopwatch.on(self.device, self.count or COUNT),
            num_sets=self.sets or NUM_SETS,
            num_checked=NUM_CHECKED if self.check else 0,
        )

    @property
    def worst_bench(self) -> Bench:
        """Of the worst table."""
        return Bench(
            backends=self.backends,
            stopwatch=Stopwatch.on(self.device, self.count or WORST_COUNT),
            num_sets=self.sets or WORST_NUM_SETS,
            num_checked=WORST_NUM_CHECKED if self.check else 0,
            only_cold=True,
        )

    def _rows(self) -> Iterator[Workload]:
        recipe = Recipe(
            temperature=self.temperature, min_p=self.min_p, top_k=self.top_k, top_p=self.top_p
        )
        for vocab_size, num_spec_tokens, policy in product(
            self.vocab_size, self.spec_tokens, self.policies
        ):
            yield Workload(
                num_spec_tokens=num_spec_tokens,
                vocab_size=vocab_size,
                dtype=self.dtype,
                policy=policy,
                recipe=recipe,
                repetition_penalty=self.repetition_penalty,
                num_biases=self.logit_biases,
                logprobs=self.logprobs,
            )

    def _chosen(self, workloads: Iterator[Workload]) -> Iterator[Workload]:
        for workload in workloads:
            if not self.only or any(text in workload.label for text in self.only):
                yield workload


def run(wanted: Wanted) -> Run:
    """Measure, telling each workload's times on stderr as they come."""
    start = time.monotonic()
    console = Console(stderr=True, highlight=False)

    def progress(line: Line) -> None:
        console.print(_in_short(line))

    bench = wanted.bench
    bandwidth = bench.bandwidth()
    lines = bench.run(wanted.workloads(), progress)
    worst = wanted.worst_bench.run(wanted.worst_workloads(), progress)
    if not lines and not worst:
        raise InvalidInputError(f"--only: expected a part of a row's name, got {wanted.only}")
    return Run(
        date=datetime.now(UTC).date().isoformat(),
        machine=describe(wanted.device),
        bandwidth=bandwidth,
        num_sets=bench.num_sets,
        seconds=round(time.monotonic() - start, 1),
        lines=lines,
        worst=worst,
    )


def _in_short(line: Line) -> str:
    workload = line.workload
    parts = [f"R = {workload.num_reqs}, {workload.inputs}, {workload.label}:"]
    for cell in line.cells:
        time_or_not = NOT_AVAILABLE if cell.times is None else number(cell.cold)
        parts.append(f"{cell.backend} {time_or_not}")
        parts += [f"({cell.num_different} differ)"] * (cell.num_different > 0)
    return " ".join([*parts, f"floor {number(line.cold_floor)}"])


def reread(path: Path) -> Run:
    """An earlier run."""
    return read_record(path, Run, "bench kernels")


def show(measured: Run) -> None:
    """Print the tables."""
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    for caption, table in terminal_tables(measured):
        console.print(table.as_rich(), caption, "", sep="\n")


def write(
    measured: Run, json_file: Path | None, markdown_file: Path | None, plot_file: Path | None
) -> None:
    """Write what was asked for."""
    write_outputs(measured, markdown(measured), json_file, markdown_file)
    if plot_file is not None:
        plot(measured, plot_file)
