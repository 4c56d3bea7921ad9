"""CUDA sources built by g++, to be called as functions of the host."""

import ctypes
import shutil
from functools import cache
from pathlib import Path

from acceptor.backends.cupy_backend.variant import KERNELS, Variant

from .kept_libraries import KeptLibraries

GXX = shutil.which("g++")
_ROOT = Path(__file__).parents[2]
_FOLDERS = ("tests/backends/cuda_on_host", "tests/cuda_on_host", "backends/cupy_backend/cuda")
_LIBRARIES = KeptLibraries(_ROOT / ".host_cache", [_ROOT / folder for folder in _FOLDERS])


@cache
def library_of(kernel: str, variant: Variant) -> ctypes.CDLL:
    """The library that has a kernel."""
    warps = f"-DKERNEL_WARPS={KERNELS[kernel].num_warps}"
    return ctypes.CDLL(str(_LIBRARIES.of("kernels_on_host", (*variant.macros, warps))))
