"""The driver, through CuPy: compiled kernels of one device, loaded once and launched cheaply."""

import torch
from attrs import field, frozen

from ...core.errors import UnavailableError
from .cache import CompiledKernels
from .compiler import INSTALL
from .kernel import Kernel, driver_function
from .variant import KERNELS, Variant

WARP_THREADS = 32
OLDEST_ARCHITECTURE, OLDEST_OVERLAPPING = 80, 90
FIRST = ("marks", "greedy", "statistics", "thresholds", "wide_thresholds")
"""The kernels that wait for the whole launch before; the others may begin earlier."""
_MOST_ASKED_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


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
                # No matter of the driver's age; the engine knows what to do.
                raise
            kept = self.compiled.path(name, variant, self.architecture)
            raise UnavailableError(
                f"backend cupy: the CUDA driver refuses kernel {name} for sm_{self.architecture}: "
                f"{error}; expected a driver for CUDA 13 or newer; if this one is, delete {kept}"
            ) from error
        self._modules.append(module)
        overlaps = name not in FIRST and self.architecture >= OLDEST_OVERLAPPING
        if overlaps:
            driver_function()
        return Kernel(function, room, num_threads, shared, overlaps, driver)
