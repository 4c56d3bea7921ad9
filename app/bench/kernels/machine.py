"""Describes the machine of a run: the kind of device, the driver, the versions that matter."""

import platform
from importlib.metadata import distributions

import torch
from torch.utils.collect_env import run, run_and_read_all

_ASK_DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
PACKAGES = ("acceptor", "torch", "triton", "cupy-cuda13x")


def describe(device: torch.device) -> dict[str, str]:
    """The description that stands beside figures."""
    about = {"device": "CPU, " + platform.machine(), "python": platform.python_version()}
    if device.type == "cuda":
        about["device"] = torch.cuda.get_device_name(device)
        # A line for each device.
        about["driver"] = (run_and_read_all(run, _ASK_DRIVER) or "unknown").split("\n")[0]
        about["cuda"] = str(torch.version.cuda)
    # If a name occurs several times, the first one is imported.
    installed = {one.name: one.version for one in reversed([*distributions()])}
    return about | {name: installed.get(name, "not installed") for name in PACKAGES}
