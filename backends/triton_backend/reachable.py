"""Tensors that Triton's kernels can reach; this module refuses to launch anything."""

import torch
from triton import knobs
from triton.backends.driver import GPUDriver
from triton.runtime import driver

from ...core.errors import InvalidInputError


def check_reachable(name: str, device: torch.device) -> None:
    """Raise `InvalidInputError` for memory that only Triton's interpreter could read."""
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
