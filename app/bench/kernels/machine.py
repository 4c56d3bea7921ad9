"""Where a run took place: the kind of device, the driver, the versions that matter."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

import torch

PACKAGES = ("acceptor", "torch", "triton", "cupy-cuda13x")
_ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def describe(device: torch.device) -> dict[str, str]:
    """What to write beside figures."""
    about = {"device": "CPU, " + platform.machine(), "python": platform.python_version()}
    if device.type == "cuda":
        about["device"] = torch.cuda.get_device_name(device)
        about["driver"] = _driver()
        about["cuda"] = str(torch.version.cuda)
    return about | {name: _version(name) for name in PACKAGES}


def _driver() -> str:
    try:
        asked = subprocess.run(  # noqa: S603, the command is written above
            _ASK_DRIVER, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return asked.stdout.split("\n")[0].strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
