"""From the command's options to a run, and from a run to files; refuses to measure by itself."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import torch
from attrs import field, frozen
from rich.console import Console

from ....backends import BACKENDS
from ....core.errors import InvalidInputError
from ....core.sampling_params import Recipe
from .figures import cold_time
from .machine import describe
from .measure import Bench
from .results import Line, Run
from .stopwatch import Stopwatch
from .table import NOT_AVAILABLE, markdown, number, terminal_table
from .workload import Workload, headline

WIDTH = 190


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
    requests: tuple[int, ...]
    spec_tokens: tuple[int, ...]
    vocab_size: tuple[int, ...]
    dtype: str
    policies: tuple[str, ...]
    temperature: float
    min_p: float
    top_k: int
    top_p: float
    device: torch.device = field(converter=_device)
    count: int
    sets: int
    check: bool

    def __attrs_post_init__(self) -> None:
        for name in self.backends:
            if name not in BACKENDS:
                known = ", ".join(BACKENDS)
                raise InvalidInputError(f"--backend: expected one of {known}, got {name!r}")

    def workloads(self) -> Iterator[Workload]:
        """Every combination, shape by shape."""
        if self.headline:
            yield from headline()
            return
        recipe = Recipe(
            temperature=self.temperature, min_p=self.min_p, top_k=self.top_k, top_p=self.top_p
        )
        shapes = product(self.vocab_size, self.spec_tokens, self.requests, self.policies)
        for vocab_size, num_spec_tokens, num_reqs, policy in shapes:
            yield Workload(
                num_reqs=num_reqs,
                num_spec_tokens=num_spec_tokens,
                vocab_size=vocab_size,
                dtype=self.dtype,
                policy=policy,
                recipe=recipe,
            )


def run(wanted: Wanted) -> Run:
    """Measure, telling each workload's times on stderr as they come."""
    start = time.monotonic()
    bench = Bench(
        backends=wanted.backends,
        stopwatch=Stopwatch.on(wanted.device, wanted.count),
        num_sets=wanted.sets,
        check=wanted.check,
    )
    console = Console(stderr=True, highlight=False)
    bandwidth = bench.bandwidth()
    lines = bench.run(wanted.workloads(), lambda line: console.print(_in_short(line)))
    return Run(
        date=datetime.now(UTC).date().isoformat(),
        machine=describe(wanted.device),
        bandwidth=bandwidth,
        num_sets=wanted.sets,
        seconds=round(time.monotonic() - start, 1),
        lines=lines,
    )


def _in_short(line: Line) -> str:
    parts = [f"R = {line.workload.num_reqs}, {line.workload.label}:"]
    for cell in line.cells:
        time_or_not = number(cold_time(cell)) if cell.times is not None else NOT_AVAILABLE
        parts.append(f"{cell.backend} {time_or_not}")
    return " ".join([*parts, f"floor {number(line.cold_floor)}"])


def reread(path: Path) -> Run:
    """An earlier run."""
    return Run.read(path)


def show(measured: Run) -> None:
    """Print the table."""
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    console.print(terminal_table(measured))


def write(
    measured: Run, json_file: Path | None, markdown_file: Path | None, plot_file: Path | None
) -> None:
    """Write what was asked for."""
    if json_file is not None:
        json_file.write_text(measured.to_json(), encoding="utf-8")
    if markdown_file is not None:
        markdown_file.write_text(markdown(measured), encoding="utf-8")
    if plot_file is not None:
        from .plot import plot  # noqa: PLC0415, optional

        plot(measured, plot_file)
