"""A launch that may begin before the one before it has ended, which CuPy's driver module lacks.

From sm_90 on; the kernel itself waits for what it reads.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from ...core.errors import UnavailableError

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_CONFIG = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, shared bytes; stream, attributes, how many."""
_CLUSTER_DIMENSION = 4
_ATTRIBUTE = struct.Struct("=IIIII52x")
"""CUlaunchAttribute: which, and a union of 64 bytes."""


@cache
def attributes_of(cluster: int, overlaps: bool) -> tuple[Any, int]:
    """The attributes of a launch, and how many."""
    packed = _ATTRIBUTE.pack(_CLUSTER_DIMENSION, 0, cluster, 1, 1)
    if overlaps:
        packed += _ATTRIBUTE.pack(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1, 0, 0)
    return ctypes.create_string_buffer(packed), len(packed) // _ATTRIBUTE.size


def launch_in_clusters(
    function: int, config: tuple[int, ...], cluster: int, overlaps: bool, pointers: int
) -> None:
    """Enqueue one launch, see `Kernel`.

    Raises:
        UnavailableError: the driver is not found.
        RuntimeError: it refuses.
    """
    attributes, count = attributes_of(cluster, overlaps)
    packed = _CONFIG.pack(*config, ctypes.addressof(attributes), count)
    error = driver_function()(packed, function, pointers, None)
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
