"""Kernels that are started while the one before still runs.

CUDA calls it programmatic dependent launch: a kernel that is launched so waits, in every program
that writes, before it touches what an earlier one wrote, and so ends behind all earlier ones. This
module refuses to decide what may be read before: weights, and what earlier steps have left.
"""

import torch

LEAST_CAPABILITY = (9, 0)


def can_overlap(device: torch.device) -> bool:
    """Whether kernels on a device may start before those before them have ended."""
    if device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY


def launch_options(*, overlaps: bool) -> dict[str, bool]:
    """What a launch is told for a kernel to be started early."""
    return {"launch_pdl": True} if overlaps else {}
