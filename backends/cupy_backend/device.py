"""Loads a device's compiled kernels once through CuPy, and launches them cheaply by the driver.

From sm_90 on a launch may begin before the previous one has ended, and the kernel itself waits for
its inputs. CuPy's driver module has no such option.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from attrs import field, frozen

from ...core.errors import UnavailableError
from .cache import CompiledKernels
from .compiler import INSTALL
from .variant import KERNELS, Variant

WARP_THREADS = 32
OLDEST_ARCHITECTURE, OLDEST_OVERLAPPING = 80, 90
_MOST_ASKED_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_CONFIG = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, shared bytes; stream, attributes and their number."""
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
        overlaps: whether it can begin before the launch before it has ended.
        driver: CuPy's module of that name.
    """

    function: int
    room: int
    num_threads: int
    shared: int
    overlaps: bool
    driver: Any

    def launch(
        self, grid: tuple[int, int], stream: int, pointers: int, follows: bool = False
    ) -> None:
        """Enqueue one launch.

        Args:
            grid: CTAs, of `num_threads` threads each.
            stream: the raw handle.
            pointers: address of an array of one pointer, to the kernel's argument, which is copied
                before this returns.
            follows: whether the launch before is of the same call.

        Raises:
            RuntimeError: the driver refuses.
        """
        shape = (*grid, 1, self.num_threads, 1, 1, self.shared)
        if not (follows and self.overlaps):
            self.driver.launchKernel(self.function, *shape, stream, pointers, 0)
            return
        config = _CONFIG.pack(*shape, stream, ctypes.addressof(_ATTRIBUTE), 1)
        error = driver_function()(config, self.function, pointers, None)
        if error:
            raise RuntimeError(f"cuLaunchKernelEx: the driver returned error {error}")


@cache
def driver_function() -> Callable[..., int]:
    """The driver's launch function; looked up before the first of several launches is enqueued.

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


@frozen(eq=False)
class Device:
    """One CUDA device.

    Attributes:
        index: torch's number of it.
        architecture: its compute capability, 90 for sm_90.
        num_multiprocessors: how many it has.
        compiled: the source of machine code.
    """

    index: int
    architecture: int
    num_multiprocessors: int
    compiled: CompiledKernels
    _kernels: dict[tuple[str, Variant], Kernel] = field(factory=dict, init=False)

    @classmethod
    def open(cls, index: int, compiled: CompiledKernels) -> "Device":
        """Look a device up.

        Raises:
            UnavailableError: CuPy, the driver or the device is missing, or the device is too old.
        """
        try:
            import cupy_backends.cuda.api.driver  # noqa: F401, PLC0415 (may be missing)
        except ImportError as error:
            raise UnavailableError(f"backend cupy: {error}; install with: {INSTALL}") from error
        try:
            properties = torch.cuda.get_device_properties(index)
        except (AssertionError, RuntimeError) as error:  # what torch raises without CUDA or driver
            raise UnavailableError(
                f"backend cupy: expected an NVIDIA driver and device {index}, got: {error}; "
                f"install a driver for CUDA 13 or newer, then: {INSTALL}"
            ) from error
        architecture = 10 * properties.major + properties.minor
        if architecture < OLDEST_ARCHITECTURE:
            raise UnavailableError(
                f"backend cupy: expected compute capability 8.0 or newer, got "
                f"{properties.major}.{properties.minor} on cuda:{index}"
            )
        return cls(index, architecture, properties.multi_processor_count, compiled)

    def kernel(self, name: str, variant: Variant) -> Kernel:
        """A kernel, compiled and loaded when first asked for."""
        key = name, variant.of_kernel(name)
        known = self._kernels.get(key)
        if known is None:
            known = self._kernels[key] = self._load(*key)
        return known

    def _load(self, name: str, variant: Variant) -> Kernel:
        """See `kernel`.

        Raises:
            UnavailableError: NVRTC is missing, or the driver cannot load what it made.
        """
        from cupy_backends.cuda.api import driver  # noqa: PLC0415 (loaded by `open`)

        code = self.compiled.load(name, variant, self.architecture)
        form = KERNELS[name]
        shared, num_threads = form.counts * variant.count_bytes, form.num_warps * WARP_THREADS
        try:
            with torch.cuda.device(self.index):
                module = driver.moduleLoadData(code)
                function = driver.moduleGetFunction(module, form.source or name)
                if shared:
                    driver.funcSetAttribute(function, _MOST_ASKED_SHARED, shared)
                measure = driver.occupancyMaxActiveBlocksPerMultiprocessor
                room = measure(function, num_threads, shared) * self.num_multiprocessors
        except RuntimeError as error:
            if "out of memory" in str(error):
                # The driver is not too old; the engine handles a lack of memory.
                raise
            kept = self.compiled.path(name, variant, self.architecture)
            raise UnavailableError(
                f"backend cupy: the CUDA driver refuses kernel {name} for sm_{self.architecture}: "
                f"{error}; expected a driver for CUDA 13 or newer; if this one is, delete {kept}"
            ) from error
        overlaps = self.architecture >= OLDEST_OVERLAPPING
        if overlaps:
            driver_function()
        return Kernel(function, room, num_threads, shared, overlaps, driver)
