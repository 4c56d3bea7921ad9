"""Compiled kernels as the CUDA driver launches them, without a launcher of Triton's between.

All that a launch needs is laid down once in memory that the driver reads; a later launch only
overwrites words in it. This module refuses kernels that need more than arguments, and to wait.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from attrs import frozen
from triton.compiler import CompiledKernel

WORD = 8
"""Bytes of an argument's place; shorter ones lie in its first bytes."""

OVERLAPPING = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""

FORMATS: Mapping[str, str] = {
    **{f"i{bits}": letter for bits, letter in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))},
    **{f"u{bits}": letter for bits, letter in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    "i1": "b",
    "fp32": "f",
    "fp64": "d",
}
"""How Triton's types of numbers lie in memory."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_uint32),
        ("rest", ctypes.c_uint32 * 15),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint32),
    )


@frozen(eq=False)
class DriverLaunch:
    """A kernel on its grid.

    Attributes:
        config: whose stream is set before a launch.
        start: enqueues it, and returns the driver's error or 0.
        keep: memory that the launch reads.
    """

    config: LaunchConfig
    start: Callable[[], int]
    keep: Sequence[object]


def driver_launch(
    kernel: CompiledKernel, grid: Sequence[int], arguments: Iterator[int], no_scratch: int
) -> DriverLaunch:
    """A launch whose arguments are read from these addresses.

    Args:
        kernel: see `is_launchable`.
        grid: numbers of programs.
        arguments: where each argument of the compiled kernel lies.
        no_scratch: where a null pointer does: what Triton's allocator would have given.
    """
    metadata = kernel.metadata
    overlapping = LaunchAttribute(id=OVERLAPPING, value=1)
    config = LaunchConfig(
        grid=(*grid, 1, 1)[:3],
        block=(32 * metadata.num_warps, 1, 1),
        shared_bytes=metadata.shared,
        attributes=ctypes.addressof(overlapping),
        num_attributes=int(metadata.launch_pdl),
    )
    addresses = [*arguments, no_scratch, no_scratch]
    parameters = (ctypes.c_void_p * len(addresses))(*addresses)
    start = partial(
        driver_function(),
        ctypes.c_void_p(ctypes.addressof(config)),
        ctypes.c_void_p(kernel.function),
        ctypes.c_void_p(ctypes.addressof(parameters)),
        None,
    )
    return DriverLaunch(config, start, (overlapping, parameters))


def is_launchable(kernel: CompiledKernel) -> bool:
    """Whether arguments are all that it needs."""
    metadata = kernel.metadata
    needs = (
        metadata.num_ctas > 1,
        metadata.launch_cooperative_grid,
        metadata.global_scratch_size,
        metadata.profile_scratch_size,
    )
    return not any(needs) and all(
        kind.startswith("*") or kind in FORMATS for kind, _ in flattened(kernel, None)
    )


def flattened(kernel: CompiledKernel, arguments: Sequence[Any] | None) -> Iterator[tuple[str, Any]]:
    """Type and value of each argument that the compiled kernel has; no values are None."""
    return _flattened(tuple(kernel.src.signature.values()), arguments)


def _flattened(kind: Any, argument: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, tuple):
        values = [None] * len(kind) if argument is None else argument
        for part, value in zip(kind, values, strict=True):
            yield from _flattened(part, value)
    elif kind != "constexpr":
        yield kind, argument


def word_of(kind: str, number: float) -> int:
    """A number as it lies in memory."""
    packed = struct.pack("<" + FORMATS[kind], number).ljust(WORD, b"\0")
    return int.from_bytes(packed, "little")


@cache
def driver_function() -> Callable[..., int]:
    """The driver's `cuLaunchKernelEx`."""
    function: Callable[..., int] = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    return function
