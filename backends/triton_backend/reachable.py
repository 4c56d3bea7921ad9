"""Which tensors Triton's kernels can reach, and on which devices they run."""

import torch
from triton import knobs
from triton.backends.driver import GPUDriver
from triton.runtime import driver

from ...core.errors import InvalidInputError, UnavailableError

OLDEST_CAPABILITY = (8, 0)
"""Before it there is no bfloat16."""


def check_reachable(name: str, device: torch.device) -> None:
    """Refuse memory that no kernel reads.

    Raises:
        InvalidInputError: only Triton's interpreter could read it.
        UnavailableError: the device is too old.
    """
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < OLDEST_CAPABILITY:
            raise UnavailableError(
                f"backend triton: expected compute capability 8.0 or newer, got {major}.{minor} "
                f"on {device}"
            )
    if device.type != "cpu" or knobs.runtime.interpret:
        return
    if not _has_driver() or isinstance(driver.active, GPUDriver):
        raise InvalidInputError(
            f"{name}: expected a CUDA device, or TRITON_INTERPRET=1 to simulate one, got {device}"
        )


def _has_driver() -> bool:
    try:
        return driver.active is not None
    except RuntimeError:
        return False
