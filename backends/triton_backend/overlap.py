"""Stages that overlap: programs of a stage start while those of the stage before still run.

CUDA calls it programmatic dependent launch. A stage that is launched so must wait, in every
program, before it touches what an earlier stage writes: then it ends behind all earlier stages, and
whoever waits for it has waited for them, too. What it reads before must have been there before
the first stage, which is launched as usual. This module refuses to decide who overlaps.
"""

import triton
import triton.language as tl
from triton import knobs
from triton.runtime import driver

OVERLAP = True
"""Whether samplers let their stages overlap unless told otherwise."""

LEAST_CAPABILITY = 90


def can_overlap() -> bool:
    """Whether the current device knows how to; the interpreter does not."""
    if knobs.runtime.interpret:
        return False
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= LEAST_CAPABILITY)


@triton.jit
def let_next_stage_start(OVERLAPS: tl.constexpr):
    """Once every program has come here, programs of the next stage may start."""
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_stage_before(OVERLAPS: tl.constexpr):
    """Until the stage before has ended and all that it wrote can be seen."""
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
