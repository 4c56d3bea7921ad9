"""Loads kernels and launches them on torch's current stream, each before the last one has ended.

This module refuses to know what a kernel computes.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache

import torch
from attrs import frozen

from ...core.errors import UnavailableError
from .program import CudaProgram

_PROGRAMMATIC_STREAM_SERIALIZATION, _CLUSTER_DIMENSION = 6, 4
_CONFIG = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, shared bytes; stream, attributes, how many."""


@frozen(eq=False)
class Kernel:
    """A kernel on a device.

    Attributes:
        threads: of a CTA.
        memory: shared memory of a CTA, in bytes.
        function: the driver's handle.
        kept: what the handle is of.
        attributes: CUlaunchAttribute, two: each a name and a union of 64 bytes.
    """

    threads: int
    memory: int
    function: int
    kept: object
    attributes: "ctypes.Array[ctypes.c_char]"

    def launch(self, num_ctas: int, arguments: bytes, device: torch.device) -> None:
        """Enqueue it.

        Raises:
            RuntimeError: the driver refuses.
        """
        packed = ctypes.create_string_buffer(arguments, len(arguments))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(packed))
        stream = torch.cuda.current_stream(device).cuda_stream
        config = _CONFIG.pack(
            *(num_ctas, 1, 1, self.threads, 1, 1),
            *(self.memory, stream, ctypes.addressof(self.attributes), 2),
        )
        with torch.cuda.device(device):
            error = _driver_function()(config, self.function, pointers, None)
        if error:
            raise RuntimeError(f"cuLaunchKernelEx: the driver returned error {error}")


def load_kernel(
    program: CudaProgram,
    name: str,
    macros: Sequence[str],
    device: torch.device,
    *,
    threads: int,
    memory: int,
    cluster: int = 1,
) -> Kernel:
    """Compiled, and in the device's memory.

    Args:
        program: has a kernel of this name.
        name: of the kernel.
        macros: see `CudaProgram.machine_code`.
        device: a GPU.
        threads, memory: of a CTA.
        cluster: of so many CTAs.

    Raises:
        UnavailableError: it cannot be compiled or loaded here.
    """
    major, minor = torch.cuda.get_device_capability(device)
    try:
        file = program.machine_code(macros, f"sm_{major}{minor}a")
        _driver_function()
        import cupy  # noqa: PLC0415 (not installed everywhere)

        with torch.cuda.device(device):
            kernel = cupy.RawModule(path=str(file)).get_function(name)
            kernel.max_dynamic_shared_size_bytes = memory
            function = kernel.kernel.ptr  # of the current device
    except (ImportError, OSError, RuntimeError) as error:
        raise UnavailableError(f"{program.title}: {error}") from error
    attributes = struct.pack("=IIi60x", _PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
    attributes += struct.pack("=II3I52x", _CLUSTER_DIMENSION, 0, cluster, 1, 1)
    kept = ctypes.create_string_buffer(attributes, len(attributes))
    return Kernel(threads, memory, function, kernel, kept)


@cache
def _driver_function() -> Callable[..., int]:
    """What launches.

    Raises:
        UnavailableError: the driver is not found.
    """
    try:
        function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"expected a driver: {error}") from error
    function.argtypes = [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    launch: Callable[..., int] = function
    return launch
