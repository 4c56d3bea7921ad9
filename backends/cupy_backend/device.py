"""The driver, through CuPy: compiled kernels of one device, loaded once and launched cheaply.

It refuses to run without a CUDA driver, and to choose a stream: the caller's current one is used.
"""

import ctypes
from collections.abc import Sequence

import torch
from attrs import field, frozen

from ...core.errors import UnavailableError
from .cache import CompiledKernels
from .compiler import INSTALL
from .variant import Variant

CTA_THREADS = 288
OLDEST_ARCHITECTURE = 80


@frozen(eq=False)
class Kernel:
    """A kernel that is ready to launch.

    Attributes:
        function: the driver's handle.
        ctas_per_multiprocessor: how many fit.
    """

    function: int
    ctas_per_multiprocessor: int

    def launch(self, num_ctas: int, threads: int, stream: int, params: bytes) -> None:
        """Enqueue one launch; `params` is copied before this returns."""
        from cupy_backends.cuda.api import driver  # noqa: PLC0415 (loaded by `Device.open`)

        argument = ctypes.c_char_p(params)
        address = ctypes.cast(argument, ctypes.c_void_p).value
        pointers = (ctypes.c_void_p * 1)(address)
        driver.launchKernel(
            self.function, num_ctas, 1, 1, threads, 1, 1, 0, stream, ctypes.addressof(pointers), 0
        )


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
    _kernels: dict[tuple[str, tuple[str, ...]], Kernel] = field(factory=dict, init=False)
    _modules: list[int] = field(factory=list, init=False)

    @classmethod
    def open(cls, index: int, compiled: CompiledKernels) -> "Device":
        """Look a device up.

        Raises:
            UnavailableError: CuPy is missing, or the device is too old.
        """
        try:
            import cupy_backends.cuda.api.driver  # noqa: F401, PLC0415 (may be missing)
        except ImportError as error:
            raise UnavailableError(f"backend cupy: {error}; install with: {INSTALL}") from error
        properties = torch.cuda.get_device_properties(index)
        architecture = 10 * properties.major + properties.minor
        if architecture < OLDEST_ARCHITECTURE:
            raise UnavailableError(
                f"backend cupy: expected compute capability {OLDEST_ARCHITECTURE} or newer, "
                f"got {architecture} on device {index}"
            )
        return cls(index, architecture, properties.multi_processor_count, compiled)

    def verification(self, variant: Variant) -> Kernel:
        """The verification kernel in one variant."""
        return self.kernel("verify", variant.macros, CTA_THREADS)

    def kernel(self, name: str, macros: Sequence[str], threads: int) -> Kernel:
        """A kernel, compiled and loaded when first asked for."""
        key = (name, tuple(macros))
        known = self._kernels.get(key)
        if known is None:
            known = self._load(name, macros, threads)
            self._kernels[key] = known
        return known

    def _load(self, name: str, macros: Sequence[str], threads: int) -> Kernel:
        from cupy_backends.cuda.api import driver  # noqa: PLC0415 (loaded by `open`)

        code = self.compiled.load(name, macros, self.architecture)
        with torch.cuda.device(self.index):
            module = driver.moduleLoadData(code)
            function = driver.moduleGetFunction(module, name)
            fit = driver.occupancyMaxActiveBlocksPerMultiprocessor(function, threads, 0)
        self._modules.append(module)
        return Kernel(function, fit)
