"""A launch that may begin before the one before it has ended, which CuPy's driver module lacks.

From sm_90 on; the kernel itself waits for what it reads.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import cache

from ...core.errors import UnavailableError

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_CONFIG = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, shared bytes; stream, attributes, how many."""
_ATTRIBUTE = ctypes.create_string_buffer(
    struct.pack("=IIi60x", _PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
)
"""CUlaunchAttribute: which, and a union of 64 bytes."""


def launch_overlapping(
    function: int, grid: tuple[int, int], num_threads: int, shared: int, stream: int, pointers: int
) -> None:
    """Enqueue one launch, see `Kernel`.

    Raises:
        UnavailableError: the driver is not found.
        RuntimeError: it refuses.
    """
    attributes = ctypes.addressof(_ATTRIBUTE)
    config = _CONFIG.pack(*grid, 1, num_threads, 1, 1, shared, stream, attributes, 1)
    error = driver_function()(config, function, pointers, None)
    if error:
        raise RuntimeError(f"cuLaunchKernelEx: the driver returned error {error}")


@cache
def driver_function() -> Callable[..., int]:
    """What launches; found before anything is enqueued that another launch must follow.

    Raises:
        UnavailableError: the driver is not found.
    """
    try:
        function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"backend cupy: expected a driver for CUDA 13: {error}") from error
    function.argtypes = [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    launch: Callable[..., int] = function
    return launch
