"""`python -m kit.cupy_reads.subject FILE`: verifications for a profiler to watch, one at a time.

Each begins with a cold cache, between the profiler's start and stop; the file says what they were.
It refuses to count by itself.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from acceptor.app.bench.kernels.inputs import Step
from acceptor.app.bench.kernels.stopwatch import FLUSHED_BYTES
from acceptor.app.bench.kernels.workload import Workload
from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.device import Device
from acceptor.backends.cupy_backend.shape import LaunchShape
from kit.cupy_reads.record import as_values
from kit.cupy_reads.workloads import ROWS, Ways, bytes_judged, job_of, random_steps

SIZES = (1, 16, 64, 256)
NUM_SETS = 2
NOT_CHOSEN = ("narrow", "rowwise 2", "pieces 30", "greedy_pieces 12", "pair_pieces 30")
"""What is counted where the wide kernel is chosen, too."""


def watched(sampler: Any, step: Step, shape: LaunchShape, flushed: torch.Tensor) -> list[int]:
    """Verify, unwatched first; how many draft tokens requests keep."""
    out = sampler.verify(step.batch, step.params, step.policy, shape=shape)
    flushed.zero_()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    sampler.verify(step.batch, step.params, step.policy, shape=shape, out=out)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    kept: list[int] = out.num_accepted.tolist()
    return kept


def cases(
    sampler: Any, workload: Workload, device: Device, flushed: torch.Tensor
) -> Iterator[dict[str, Any]]:
    """What was run, with its kernels in order."""
    for step in random_steps(workload, sampler, NUM_SETS):
        job = job_of(step)
        ways = Ways.of(job, device)
        others = [name for name in NOT_CHOSEN if name in ways.shapes]
        for name in (ways.chosen, *(others if ways.chosen == "wide" else ())):
            shape = ways.shapes[name]
            kept = watched(sampler, step, shape, flushed)
            yield {
                **as_values(workload),
                "way": name,
                "chosen": name == ways.chosen,
                "kernels": [kernel for kernel, _ in shape.launches(job.extent, job.variant.pieces)],
                "every": workload.num_bytes,
                "judged": bytes_judged(workload, kept),
                "accepted": sum(kept),
            }


def main() -> int:
    """Run everything under the eyes of who started it."""
    parser = argparse.ArgumentParser(prog="python -m kit.cupy_reads.subject")
    parser.add_argument("file", type=Path)
    parser.add_argument("--requests", type=int, action="append", help="repeatable")
    wanted = parser.parse_args()
    sampler: Any = load_sampler("cupy")
    device = Device.open(torch.cuda.current_device(), sampler.compiled)
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    workloads = [
        Workload(num_reqs=num_reqs, policy=policy, recipe=recipe)
        for num_reqs in wanted.requests or SIZES
        for policy, recipe in ROWS
    ]
    run = [case for one in workloads for case in cases(sampler, one, device, flushed)]
    wanted.file.write_text(json.dumps(run), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
