"""Turns the command's options into a run, and a run into files."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain, product
from pathlib import Path

from attrs import evolve

from ....backends import BACKENDS
from ....core import ConfigError, Recipe
from ....core.checks import check_choice, check_device, check_filled
from ...engine.out_of_memory import typed_out_of_memory
from ...report import new_console
from ..command import Options, given
from ..files import check_outputs, describe, read_record, write_outputs
from .measure import KernelBench, Stopwatch
from .table import NOT_AVAILABLE, about, markdown, number, picture, problems, tables
from .workload import HEADLINE, INPUTS, WORST, Line, Run, Workload

WIDTH = 190
WORST_EFFORT = {"count": 30, "num_sets": 1, "num_checked": 1, "eager": False}
"""The worst table is broad, not precise: a bad case there stands out far above noise."""


def run(options: Options) -> None:
    """Measure, or read an earlier run; print it, and write the requested files."""
    check_outputs(options, "--plot", options["plot"])
    earlier: Path | None = options["read"]
    measured = measure(options) if earlier is None else read_record(earlier, Run, "bench kernels")
    console = new_console()
    console.width = max(console.width, WIDTH)
    console.print(about(measured), *problems(measured), sep="\n", soft_wrap=True)
    for title, table in tables(measured):
        console.print("", title, table.as_rich(), sep="\n")
    write_outputs(measured, markdown(measured), options)
    if options["plot"] is not None:
        picture(measured).draw(options["plot"])


def measure(options: Options) -> Run:
    """Measure, and print each workload's times to stderr as they come."""
    start, device = time.monotonic(), check_device(options["device"])
    for text in options["only"]:
        check_filled("--only", text)
    rows: Iterable[Workload] = HEADLINE
    if not options["headline"]:
        rows = () if options["worst"] else _own_rows(options)
    workloads = [*_chosen(rows, ("lm",), options)]
    broad = [*_chosen(WORST, INPUTS, options)] if options["worst"] else []
    num_wanted = len(workloads) + len(broad)
    if not num_wanted:
        raise ConfigError(f"--only: expected part of a name, got {', '.join(options['only'])}")
    for name in options["backends"]:
        check_choice("--backend", name, BACKENDS)
    bench = partial(KernelBench, stopwatch=Stopwatch(device))
    effort = given(options, KernelBench) | ({} if options["check"] else {"num_checked": 0})
    usual, of_worst = bench(**effort), bench(**WORST_EFFORT | effort)
    console, lines, limit = new_console(stderr=True), list[Line](), options["seconds"] or math.inf
    bandwidth = usual.bandwidth
    with typed_out_of_memory("logits", device, "lower --requests or --vocab-size"):
        all_lines = chain(usual.run(workloads), of_worst.run(broad))
        while time.monotonic() - start < limit and len(lines) < num_wanted:
            lines.append(next(all_lines))
            done = f"{len(lines)} of {num_wanted}, {time.monotonic() - start:.0f} s"
            console.print(f"{done}: {_in_short(lines[-1])}", soft_wrap=True)
    if not lines:
        raise ConfigError(f"--seconds: expected time for one workload, got {limit:g}")
    return Run(
        date=datetime.now(UTC).date().isoformat(),
        machine=describe(device),
        bandwidth=bandwidth,
        num_sets=usual.num_sets,
        lines=tuple(lines[: len(workloads)]),
        worst=tuple(lines[len(workloads) :]),
        seconds=round(time.monotonic() - start, 1),
        num_left_out=num_wanted - len(lines),
    )


def _own_rows(options: Options) -> Iterator[Workload]:
    """A row for every combination of the options."""
    same = {**given(options, Workload), "recipe": Recipe(**given(options, Recipe))}
    swept = product(options["vocab_sizes"], options["lengths"], options["policies"])
    for vocab_size, length, policy in swept:
        yield Workload(vocab_size=vocab_size, num_spec_tokens=length, policy=policy, **same)


def _chosen(rows: Iterable[Workload], usual: Sequence[str], options: Options) -> Iterator[Workload]:
    """The rows with requested names, for one size and one kind of inputs after the other."""
    for size, inputs, row in product(options["sizes"], options["kinds"] or usual, rows):
        if not options["only"] or any(text in row.label for text in options["only"]):
            yield evolve(row, num_reqs=size, inputs=inputs)


def _in_short(line: Line) -> str:
    workload = line.workload
    parts = [f"R = {workload.num_reqs}, {workload.inputs}, {workload.label}, µs:"]
    for cell in line.cells:
        parts.append(f"{cell.backend} {NOT_AVAILABLE if cell.time is None else number(cell.time)}")
        if cell.num_different:
            parts.append(f"({cell.num_different} differ)")
    return " ".join([*parts, f"floor {number(line.floor)}"])
