"""A backend by its name in the registry, or by where its class is."""

import torch

from ...core.errors import UnavailableError
from ...core.ports import Sampler
from ..registry import BACKENDS, Backend, load_sampler


def load_backend(name: str) -> Sampler:
    """The sampler of a registered name, or "package.module:Class" called without arguments.

    Args:
        name: a registered name, or "package.module:Class", which is called without arguments.

    Raises:
        UnavailableError: it is unknown, or something that it needs is missing.
    """
    if ":" in name:
        return Backend(name, factory=name, summary="").load()
    return load_sampler(name)


def device_for(name: str, wanted: str | None) -> str:
    """Where a backend is to run: as wanted, else on a GPU if there is one and it needs one.

    Raises:
        UnavailableError: a CUDA device is wanted, and there is none.
    """
    has_cuda = torch.cuda.is_available()
    if wanted is None:
        needs_cuda = name in BACKENDS and BACKENDS[name].needs_cuda
        return "cuda" if needs_cuda and has_cuda else "cpu"
    if wanted.startswith("cuda") and not has_cuda:
        raise UnavailableError(f"--device: expected one that is there, got {wanted}")
    return wanted
