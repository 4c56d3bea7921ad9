"""CUDA sources built by g++, to be called as functions of the host."""

import ctypes
import shutil
from functools import cache
from pathlib import Path

from acceptor.backends.cupy_backend.variant import Variant

from .kept_libraries import KeptLibraries

GXX = shutil.which("g++")
NUM_WARPS = 4
"""Of every kernel's CTAs: as few as kernels can do with, for each thread is a fiber."""
_ROOT = Path(__file__).parents[2]
_FOLDERS = ("tests/backends/cuda_on_host", "tests/cuda_on_host", "backends/cupy_backend/cuda")
_LIBRARIES = KeptLibraries(_ROOT / ".host_cache", [_ROOT / folder for folder in _FOLDERS])


@cache
def library_of(variant: Variant) -> ctypes.CDLL:
    """The library that has a variant's kernels."""
    macros = (*variant.macros, f"-DKERNEL_WARPS={NUM_WARPS}")
    return ctypes.CDLL(str(_LIBRARIES.of("kernels_on_host", macros)))
