"""A loaded kernel and its launches.

From sm_90 on a launch may begin before the one before it has ended, and the kernel itself waits for
what it reads. CuPy's driver module cannot say so.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from attrs import frozen

from ...core.errors import UnavailableError

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_CONFIG = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, shared bytes; stream, attributes, how many."""
_ATTRIBUTE = ctypes.create_string_buffer(
    struct.pack("=IIi60x", _PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
)
"""CUlaunchAttribute: which, and a union of 64 bytes."""


@frozen(eq=False)
class Kernel:
    """A kernel that is ready to launch.

    Attributes:
        function: the driver's handle.
        room: how many of its CTAs fit on the device at once.
        num_threads: of a CTA.
        shared: bytes that a CTA asks for beside what it declares.
        overlaps: whether it may begin before the launch before it has ended.
        driver: CuPy's module of that name.
    """

    function: int
    room: int
    num_threads: int
    shared: int
    overlaps: bool
    driver: Any

    def launch(self, grid: tuple[int, int], stream: int, pointers: int) -> None:
        """Enqueue one launch.

        Args:
            grid: CTAs, of `num_threads` threads each.
            stream: the raw handle.
            pointers: address of an array of one pointer, to the kernel's argument, which is copied
                before this returns.

        Raises:
            RuntimeError: the driver refuses.
        """
        shape = (*grid, 1, self.num_threads, 1, 1, self.shared)
        if not self.overlaps:
            self.driver.launchKernel(self.function, *shape, stream, pointers, 0)
            return
        config = _CONFIG.pack(*shape, stream, ctypes.addressof(_ATTRIBUTE), 1)
        error = driver_function()(config, self.function, pointers, None)
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
    launch: Callable[..., int] = function
    return launch
