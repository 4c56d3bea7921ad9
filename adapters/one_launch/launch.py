"""Loads the kernel and launches it on torch's current stream.

This module refuses to know what the kernel computes.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import UnavailableError
from ..cuda_programs.program import CudaProgram
from .sizes import CTAS_OF_CLUSTER, MEMORY, NUM_CLUSTERS, THREADS

KERNEL, PROGRAM = "forward", CudaProgram(__package__, "forward.cu")
Launch = Callable[[int, int, tuple[Any, ...]], None]
"""Of so many CTAs of so many threads, with arguments."""

_CLUSTER_DIMENSION = 4
_CONFIG = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, shared bytes; stream, attributes, how many."""


def load_kernel(macros: Sequence[str], device: torch.device) -> Launch:
    """Compiled with macros.

    Raises:
        UnavailableError: it cannot be compiled or loaded here, or has no room to run all at once.
    """
    major, minor = torch.cuda.get_device_capability(device)
    try:
        return _load(macros, f"sm_{major}{minor}a", device)
    except (ImportError, OSError, RuntimeError) as error:
        raise UnavailableError(f"one launch: {error}") from error


def _load(macros: Sequence[str], architecture: str, device: torch.device) -> Launch:
    file = PROGRAM.machine_code(macros, architecture)
    import cupy  # noqa: PLC0415 (not installed everywhere)

    with torch.cuda.device(device):
        # CTAs wait for each other: a cooperative launch begins when there is room for all.
        module = cupy.RawModule(path=str(file), enable_cooperative_groups=True)
        kernel = module.get_function(KERNEL)
        kernel.max_dynamic_shared_size_bytes = MEMORY
        if _num_clusters(kernel.kernel.ptr) < NUM_CLUSTERS:
            raise UnavailableError(f"one launch: expected room for {NUM_CLUSTERS} clusters")

    def launch(num_ctas: int, num_threads: int, arguments: tuple[Any, ...]) -> None:
        stream = cupy.cuda.Stream.from_external(torch.cuda.current_stream(device))
        with torch.cuda.device(device), stream:
            kernel((num_ctas,), (num_threads,), arguments, shared_mem=MEMORY)

    return launch


def _num_clusters(function: int) -> int:
    """How many can run at once."""
    attribute = ctypes.create_string_buffer(
        struct.pack("=II3I52x", _CLUSTER_DIMENSION, 0, CTAS_OF_CLUSTER, 1, 1)
    )
    grid = NUM_CLUSTERS * CTAS_OF_CLUSTER
    config = _CONFIG.pack(grid, 1, 1, THREADS, 1, 1, MEMORY, 0, ctypes.addressof(attribute), 1)
    number = ctypes.c_int(0)
    query = ctypes.CDLL("libcuda.so.1").cuOccupancyMaxActiveClusters
    error = query(ctypes.byref(number), ctypes.c_void_p(function), config)
    if error:
        raise UnavailableError(f"one launch: cuOccupancyMaxActiveClusters returned error {error}")
    return number.value
