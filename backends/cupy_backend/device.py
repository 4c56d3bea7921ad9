"""The driver, through CuPy: compiled kernels of one device, loaded once and launched cheaply."""

from typing import Any

import torch
from attrs import field, frozen

from ...core.errors import UnavailableError
from .arguments import MOST_SHARED, Launch, Room
from .cache import CompiledKernels
from .compiler import INSTALL
from .overlap import driver_function, launch_in_clusters
from .variant import KERNEL_WARPS, Variant

WARP_THREADS = 32
OLDEST_ARCHITECTURE, OLDEST_MODERN = 80, 90
FIRST = "rows"
"""The kernel that waits for the whole launch before it; the others may begin earlier."""
_MOST_SHARED_BEFORE = 96 << 10
_MOST_ASKED_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_PREFERRED_CARVEOUT = 9
"""CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent."""


@frozen(eq=False)
class Kernel:
    """A kernel that is ready to launch.

    Attributes:
        function: the driver's handle.
        num_threads: of a CTA.
        modern: whether the device knows clusters, and launches that overlap.
        overlaps: whether it may begin before the launch before it has ended.
        driver: CuPy's module of that name.
    """

    function: int
    num_threads: int
    modern: bool
    overlaps: bool
    driver: Any

    def launch(self, launch: Launch, stream: int, pointers: int) -> None:
        """Enqueue one launch.

        Args:
            launch: its shape.
            stream: the raw handle.
            pointers: address of an array of one pointer, to the kernel's argument, which is copied
                before this returns.
        """
        config = (*launch.grid, 1, self.num_threads, 1, 1, launch.shared, stream)
        if self.modern:
            launch_in_clusters(self.function, config, launch.cluster, self.overlaps, pointers)
            return
        self.driver.launchKernel(self.function, *config, pointers, 0)


@frozen(eq=False)
class Device:
    """One CUDA device.

    Attributes:
        index: torch's number of it.
        architecture: its compute capability, 90 for sm_90.
        num_multiprocessors: how many it has.
        compiled: where machine code comes from.
    """

    index: int
    architecture: int
    num_multiprocessors: int
    compiled: CompiledKernels
    _kernels: dict[tuple[str, Variant], Kernel] = field(factory=dict, init=False)
    _modules: list[int] = field(factory=list, init=False)

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
        return cls(index, architecture, properties.multi_processor_count, compiled)

    @property
    def modern(self) -> bool:
        """Whether it knows clusters, and launches that overlap."""
        return self.architecture >= OLDEST_MODERN

    @property
    def room(self) -> Room:
        """What decides how rows are shared out."""
        return Room(self.num_multiprocessors, self.modern)

    def kernel(self, name: str, variant: Variant) -> Kernel:
        """A kernel, compiled and loaded when first asked for."""
        key = name, variant
        known = self._kernels.get(key)
        if known is None:
            known = self._kernels[key] = self._load(name, variant)
        return known

    def _load(self, name: str, variant: Variant) -> Kernel:
        """See `kernel`.

        Raises:
            UnavailableError: NVRTC is missing, or the driver cannot load what it made.
        """
        from cupy_backends.cuda.api import driver  # noqa: PLC0415 (loaded by `open`)

        code = self.compiled.load(name, variant, self.architecture)
        try:
            with torch.cuda.device(self.index):
                module = driver.moduleLoadData(code)
                function = driver.moduleGetFunction(module, name)
                most = MOST_SHARED if self.modern else _MOST_SHARED_BEFORE
                driver.funcSetAttribute(function, _MOST_ASKED_SHARED, most)
                driver.funcSetAttribute(function, _PREFERRED_CARVEOUT, 100)
        except RuntimeError as error:
            kept = self.compiled.path(name, variant, self.architecture)
            raise UnavailableError(
                f"backend cupy: the CUDA driver refuses kernel {name} for sm_{self.architecture}: "
                f"{error}; expected a driver for CUDA 13 or newer; if this one is, delete {kept}"
            ) from error
        self._modules.append(module)
        if self.modern:
            driver_function()
        num_threads = KERNEL_WARPS[name] * WARP_THREADS
        return Kernel(function, num_threads, self.modern, name != FIRST, driver)
