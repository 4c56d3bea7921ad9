"""Kernels that are started while the previous one still runs.

CUDA calls it programmatic dependent launch. Such a kernel waits, in every program that writes,
before it touches what an earlier kernel wrote, so it ends after all earlier ones. Before that it
may read weights and what earlier steps have left.
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
