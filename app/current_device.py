"""Making a device the current one.

Kernels of Triton and of the CUDA driver go to the current device, and streams and events that name
no device belong to it.
"""

from contextlib import AbstractContextManager, nullcontext

import torch


def current_device(device: torch.device) -> AbstractContextManager[object]:
    """Within this thread a CUDA device is the current one; on a CPU there is nothing to do."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
