"""Turns a lack of memory into a typed one-line error: what was asked, what is free, what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...core import OutOfMemoryError

_SIGNS = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
_ASKED = re.compile(r"allocate (\d[\d.]* ?\w+)")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch, CUDA, a library or the CPU says that memory has run out."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
    )


def out_of_memory(
    error: BaseException, purpose: str, device: torch.device, remedy: str
) -> OutOfMemoryError:
    """The typed error for an error for which `is_out_of_memory` holds."""
    asked = _ASKED.search(str(error))
    wanted, left = asked.group(1) if asked else "more memory", free_memory(device)
    return OutOfMemoryError(f"{purpose}: expected {wanted} on {device}, got {left}; {remedy}")


@contextmanager
def typed_out_of_memory(purpose: str, device: torch.device, remedy: str) -> Iterator[None]:
    """Raise `OutOfMemoryError` where torch raises its own."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error, purpose, device, remedy) from None


def free_memory(device: torch.device) -> str:
    """A device's free memory, in words."""
    if device.type != "cuda":
        return "less"
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        # There is not even enough memory to ask.
        return "less than a CUDA context takes"
    return f"{in_words(free)} free of {in_words(total)}"


def in_words(num_bytes: int) -> str:
    """A size in words."""
    size = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
