"""`python -m kit.cupy_reads.times`: how long each way takes in which a batch can be spread.

It refuses to time a way that returns other tokens than the chosen one.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from attrs import evolve

from acceptor.app.bench.kernels.inputs import Step
from acceptor.app.bench.kernels.stopwatch import Stopwatch, capture
from acceptor.app.bench.kernels.workload import HEADLINE, Workload
from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.device import Device
from acceptor.backends.cupy_backend.shape import LaunchShape
from kit.cupy_reads.record import as_values, record_of, write
from kit.cupy_reads.tables import NUM_DRAFTS, times_table
from kit.cupy_reads.workloads import Ways, job_of, random_steps

SIZES = (1, 2, 4, 8, 12, 16, 32, 64, 88)
NUM_SETS = 4
BURST = 9
"""Replays of which the first is not counted: it finds its code gone."""
ROUNDS = 3

Replays = list[Callable[[], object]]


def workloads(sizes: tuple[int, ...]) -> Iterator[Workload]:
    """The benchmark's, and the same without drafts: one row a request."""
    for num_reqs, row, drafts in product(sizes, HEADLINE, (NUM_DRAFTS, 0)):
        yield evolve(row, num_reqs=num_reqs, num_spec_tokens=drafts)


def timed(sampler: Any, workload: Workload, device: Device, clock: Stopwatch) -> dict[str, Any]:
    """One line of the record: every way in turn, several times."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        steps = random_steps(workload, sampler, NUM_SETS)
        ways = Ways.of(job_of(steps[0]), device)
        some = ways.shapes if workload.num_spec_tokens == NUM_DRAFTS else (ways.chosen, "wide")
        ready = {name: _replays(sampler, steps, ways.shapes[name], stream) for name in some}
        same = [n for n in ready if torch.equal(ready[n][1], ready[ways.chosen][1])]
        times: dict[str, list[float]] = {name: [] for name in same}
        for name in same * ROUNDS:
            times[name] += clock.replays(ready[name][0], cold=True)[1:]
    return {
        **as_values(workload),
        "chosen": ways.chosen,
        "different": [name for name in ready if name not in same],
        "times": {name: [round(t, 2) for t in taken] for name, taken in times.items()},
    }


def _replays(
    sampler: Any, steps: list[Step], shape: LaunchShape, stream: torch.cuda.Stream
) -> tuple[Replays, torch.Tensor]:
    """A graph for each batch, and the tokens of all."""
    outputs = [sampler.verify(s.batch, s.params, s.policy, shape=shape) for s in steps]
    calls = [
        partial(sampler.verify, s.batch, s.params, s.policy, shape=shape, out=output)
        for s, output in zip(steps, outputs, strict=True)
    ]
    graphs = capture(calls, stream)
    return [graph.replay for graph in graphs], torch.cat([out.token_ids for out in outputs])


def main() -> int:
    """Measure, print, write; 0 if all ways give the same tokens."""
    parser = argparse.ArgumentParser(prog="python -m kit.cupy_reads.times")
    parser.add_argument("--requests", type=int, action="append", help="repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE")
    wanted = parser.parse_args()
    start, sampler = time.monotonic(), load_sampler("cupy")
    device = Device.open(torch.cuda.current_device(), sampler.compiled)  # type: ignore[attr-defined]
    clock = Stopwatch.on(torch.device("cuda"), BURST)
    sizes = tuple(wanted.requests or SIZES)
    lines = [timed(sampler, workload, device, clock) for workload in workloads(sizes)]
    record = record_of(lines, start)
    sys.stdout.write(times_table(record))
    if wanted.json is not None:
        write(record, wanted.json)
    different = [line for line in lines if line["different"]]
    sys.stdout.writelines(f"tokens differ: {line}\n" for line in different)
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
