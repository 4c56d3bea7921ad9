"""What is measured of how CuPy reads: the benchmark's batches, and ways to spread them.

It refuses to run anything.
"""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen

from acceptor.app.bench.kernels.inputs import Step, make_step
from acceptor.app.bench.kernels.logits import Logits
from acceptor.app.bench.kernels.workload import DTYPES, HEADLINE, Workload
from acceptor.backends.cupy_backend.arguments import Job, verify_job
from acceptor.backends.cupy_backend.device import Device
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import Recipe

FILTERED, FLAT = HEADLINE[1].recipe, Recipe(temperature=1.5, top_p=0.95)
ROWS: Sequence[tuple[str, Recipe]] = (
    *((row.policy, row.recipe) for row in HEADLINE),
    *((policy, FILTERED) for policy in ("strict", "block")),
    *((policy, FLAT) for policy in ("strict", "probabilistic", "block")),
)
"""The benchmark's rows, and those of which filters leave much."""

ROW_PARTS = (1, 2, 4, 8, 15)
PIECE_BLOCKS = (8, 12, 16, 24, 32)


def random_steps(workload: Workload, sampler: Any, count: int) -> list[Step]:
    """Inputs that take turns, the same whenever they are asked for."""
    noise = torch.Generator("cuda").manual_seed(0)
    logits = [Logits.random(workload, noise) for _ in range(count)]
    noise.manual_seed(1)
    return [make_step(workload, one, noise, sampler) for one in logits]


def job_of(step: Step) -> Job:
    """What a launch for it is told."""
    return verify_job(step.batch, step.params, step.policy, None)


@frozen(eq=False)
class Ways:
    """How a batch can be spread.

    Attributes:
        chosen: the name of what the sampler takes.
        shapes: by name: a kernel's, and what a CTA of it reads at most.
    """

    chosen: str
    shapes: dict[str, LaunchShape]

    @classmethod
    def of(cls, job: Job, device: Device) -> "Ways":
        """Every kernel of the batch's variant, in a few sizes."""
        extent, variant = job.extent, job.variant
        room = device.verification("wide", variant).room
        narrow = LaunchShape.narrow(extent, device.verification("narrow", variant).room)
        shapes = {"narrow": narrow}
        if extent.num_reqs <= room:
            shapes["wide"] = LaunchShape.wide(extent, room, relief=variant.relief)
        if variant.by_rows is not None:
            for parts in ROW_PARTS:
                shapes[f"rowwise {parts}"] = LaunchShape.rowwise(extent, parts)
        if variant.by_pieces is not None:
            for blocks in PIECE_BLOCKS:
                shape = LaunchShape.pieces(extent, blocks)
                shapes[f"{variant.pieces} {-(-extent.target_blocks // shape.group)}"] = shape
        shape = LaunchShape.choose(
            extent, room, variant.by_rows, variant.by_pieces, relief=variant.relief
        )
        taken = shape if shape.group else narrow
        return cls(next(name for name, other in shapes.items() if other == taken), shapes)


def bytes_judged(workload: Workload, num_accepted: Sequence[int]) -> int:
    """Of rows up to where each draft ends, given how many draft tokens are kept."""
    row = workload.vocab_size * DTYPES[workload.dtype].itemsize
    return row * sum(_rows_judged(workload, kept) for kept in num_accepted)


def _rows_judged(workload: Workload, kept: int) -> int:
    drafts = workload.num_spec_tokens
    # Block verification may keep a token behind one that alone would not be.
    steps = drafts if workload.policy == "block" else min(kept + 1, drafts)
    return (1 + workload.reads_draft_logits) * steps + (kept == drafts)
