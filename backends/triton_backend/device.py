"""The current device's abilities, and stages that overlap on it.

Every program of an overlapping stage must wait before it touches data that an earlier stage writes.
So the stage ends after all earlier stages, and waiting for it means waiting for them, too. Before
the wait it may read only data from before the first stage.
"""

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.runtime import driver

from ...core.errors import InvalidInputError, UnavailableError

OLDEST_CAPABILITY = (8, 0)
"""Older devices have no bfloat16."""

LEAST_OVERLAPPING = 90
"""The compute capability from which CUDA has programmatic dependent launch."""


def check_reachable(name: str, device: torch.device) -> None:
    """Check that kernels can read a device's memory.

    Raises:
        InvalidInputError: only Triton's interpreter could.
        UnavailableError: the device is too old.
    """
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < OLDEST_CAPABILITY:
            raise UnavailableError(
                f"backend triton: expected compute capability 8.0 or newer, got {major}.{minor} "
                f"on {device}"
            )
    elif not knobs.runtime.interpret:
        raise InvalidInputError(
            f"{name}: expected a CUDA device, or TRITON_INTERPRET=1 to simulate one, got {device}"
        )


def num_processors(device: torch.device) -> int:
    """The number of a device's multiprocessors; the interpreter counts as one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def can_overlap() -> bool:
    """Whether stages can overlap on the current device; they cannot in the interpreter."""
    if knobs.runtime.interpret:
        return False
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= LEAST_OVERLAPPING)


@triton.jit
def wait_for_stage_before(call):
    """Wait until the previous stage has ended and all its writes are visible."""
    if call.variant.overlaps:
        tl.extra.cuda.gdc_wait()
