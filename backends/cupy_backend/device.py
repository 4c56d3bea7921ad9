"""The driver, through CuPy: compiled kernels of one device, loaded once and launched cheaply.

It refuses to run without a CUDA driver, and to choose a stream: the caller's current one is used.
"""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve, field, frozen

from ...core.errors import UnavailableError
from .cache import CompiledKernels
from .compiler import INSTALL, WARPS
from .overlap import driver_function, launch_overlapping
from .shape import Grid
from .variant import SHARED_WITH_BERTHS, Variant

WARP_THREADS = 32
OLDEST_ARCHITECTURE, OLDEST_OVERLAPPING = 80, 90
OVERLAPPING = ("pieces_end", "greedy_pieces_end", "pair_pieces_end")
WAITING = ("wide",)
_MOST_ASKED_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


@frozen(eq=False)
class Kernel:
    """A kernel that is ready to launch.

    Attributes:
        function: the driver's handle.
        room: how many of its CTAs fit on the device at once.
        num_threads: of a CTA.
        shared: bytes that a CTA asks for beside what it declares.
        waits: whether its CTAs wait for each other, so that all must be there at once.
        overlaps: whether it may begin before the launch before it has ended.
        driver: CuPy's module of that name.
    """

    function: int
    room: int
    num_threads: int
    shared: int
    waits: bool
    overlaps: bool
    driver: Any

    def launch(self, grid: Grid, stream: int, pointers: int) -> None:
        """Enqueue one launch.

        Args:
            grid: CTAs, of `num_threads` threads each.
            stream: the raw handle.
            pointers: address of an array of one pointer, to the kernel's argument, which is copied
                before this returns.
        """
        if self.overlaps:
            launch_overlapping(self.function, grid, self.num_threads, self.shared, stream, pointers)
            return
        shape = (*grid, self.num_threads, 1, 1, self.shared)
        if self.waits:
            self.driver.launchCooperativeKernel(self.function, *shape, stream, pointers)
        else:
            self.driver.launchKernel(self.function, *shape, stream, pointers, 0)


@frozen(eq=False)
class Device:
    """One CUDA device.

    Attributes:
        index: torch's number of it.
        architecture: its compute capability, 90 for sm_90.
        num_multiprocessors: how many it has.
        shared_memory: of each, in bytes.
        compiled: where machine code comes from.
    """

    index: int
    architecture: int
    num_multiprocessors: int
    shared_memory: int
    compiled: CompiledKernels
    _kernels: dict[tuple[str, Variant], Kernel] = field(factory=dict, init=False)
    _modules: list[int] = field(factory=list, init=False)

    @property
    def overlaps(self) -> bool:
        """Whether a launch may begin before the one before it has ended."""
        return self.architecture >= OLDEST_OVERLAPPING

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
                f"backend cupy: expected compute capability {OLDEST_ARCHITECTURE} or newer, "
                f"got {architecture} on device {index}"
            )
        num_multiprocessors = properties.multi_processor_count
        shared_memory = properties.shared_memory_per_multiprocessor
        return cls(index, architecture, num_multiprocessors, shared_memory, compiled)

    def verification(self, name: str, variant: Variant) -> Kernel:
        """A kernel of verification, compiled when first asked for."""
        key = (name, variant)
        known = self._kernels.get(key)
        if known is None:
            variant = evolve(variant, has_room=self.shared_memory >= SHARED_WITH_BERTHS)
            shared = variant.berths if name == "narrow" else 0
            known = self._kernels[key] = self.kernel(name, variant.macros, shared)
        return known

    def kernel(self, name: str, macros: Sequence[str], shared: int = 0) -> Kernel:
        """Any kernel, compiled and loaded each time.

        Args:
            name: of a `.cu` file.
            macros: its variant.
            shared: bytes that a CTA asks for beside what it declares.

        Raises:
            UnavailableError: NVRTC is missing, or the driver cannot load what it made.
        """
        from cupy_backends.cuda.api import driver  # noqa: PLC0415 (loaded by `open`)

        code = self.compiled.load(name, macros, self.architecture)
        num_threads = WARPS[name] * WARP_THREADS
        try:
            with torch.cuda.device(self.index):
                module = driver.moduleLoadData(code)
                function = driver.moduleGetFunction(module, name)
                if shared:
                    driver.funcSetAttribute(function, _MOST_ASKED_SHARED, shared)
                fit = driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    function, num_threads, shared
                )
        except RuntimeError as error:
            if "out of memory" in str(error):
                # No matter of the driver's age; the engine knows what to do.
                raise
            kept = self.compiled.path(name, macros, self.architecture)
            raise UnavailableError(
                f"backend cupy: the CUDA driver refuses kernel {name} for sm_{self.architecture}: "
                f"{error}; expected a driver for CUDA 13 or newer; if this one is, delete {kept}"
            ) from error
        self._modules.append(module)
        room, overlaps = fit * self.num_multiprocessors, name in OVERLAPPING and self.overlaps
        if overlaps:
            driver_function()
        return Kernel(function, room, num_threads, shared, name in WAITING, overlaps, driver)
