"""What the current device can do, and kernels that overlap on it.

A stage that is launched to overlap with the one before must wait, in every program, before it
touches what an earlier stage writes: then it ends behind all earlier stages, and whoever waits for
it has waited for them, too. What it reads before must have been there before the first stage.
"""

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.runtime import driver

from ...core.errors import InvalidInputError, UnavailableError

OLDEST_CAPABILITY = (8, 0)
"""Before it there is no bfloat16."""

LEAST_OVERLAPPING = 90
"""The compute capability from which CUDA has programmatic dependent launch."""


def check_reachable(name: str, device: torch.device) -> None:
    """Refuse memory that no kernel reads.

    Raises:
        InvalidInputError: only Triton's interpreter could read it.
        UnavailableError: the device is too old.
    """
    if device.type != "cuda" and not knobs.runtime.interpret:
        raise InvalidInputError(
            f"{name}: expected a CUDA device, or TRITON_INTERPRET=1 to simulate one, got {device}"
        )
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < OLDEST_CAPABILITY:
            raise UnavailableError(
                f"backend triton: expected compute capability 8.0 or newer, got {major}.{minor} "
                f"on {device}"
            )


def num_processors(device: torch.device) -> int:
    """A device's multiprocessors; the interpreter is one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def can_overlap() -> bool:
    """Whether the current device lets stages overlap; the interpreter does not."""
    if knobs.runtime.interpret:
        return False
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= LEAST_OVERLAPPING)


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
