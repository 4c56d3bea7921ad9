"""Tensor maps: how a matrix is cut into boxes that a GPU copies to shared memory by itself.

This module refuses to launch anything.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from ...core.errors import UnavailableError
from ..transformer import Decoder
from .sizes import linears_of

COLUMNS = 64
"""Of a line of 128 bytes."""

MOST_DOWN_BLOCKS = 8
_BYTES, _ALIGNED = 128, 64
_BFLOAT16, _LINES_OF_128, _PROMOTED_128 = 9, 3, 2


def maps_of(decoder: Decoder) -> Tensor:
    """All maps that the kernel needs, uint8, in its order.

    Raises:
        UnavailableError: there is no driver that makes them, or it refuses.
    """
    every = b"".join(_all_maps(decoder))
    return torch.frombuffer(bytearray(every), dtype=torch.uint8).to(decoder.embedding.device)


def _all_maps(decoder: Decoder) -> Iterator[bytes]:
    for layer in decoder.layers:
        qkv, output, gate_up, down = (linear.weight for linear in linears_of(layer))
        yield from (_map(qkv, 8, 4), _map(output, 8, 4), _map(gate_up, 8, 8))
        yield from (_map(down, 16, blocks) for blocks in range(1, MOST_DOWN_BLOCKS + 1))
    yield _map(decoder.lm_head.weight, 16, 8)


def _map(weight: Tensor, rows: int, blocks: int) -> bytes:
    """Of [rows, columns] bfloat16 as [blocks, rows, COLUMNS], in boxes of so many."""
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNED)
    goal = -(-ctypes.addressof(memory) // _ALIGNED) * _ALIGNED
    num_rows, num_columns = weight.shape
    error = _encode()(
        goal,
        _BFLOAT16,
        3,
        weight.data_ptr(),
        (ctypes.c_uint64 * 3)(COLUMNS, num_rows, num_columns // COLUMNS),
        (ctypes.c_uint64 * 2)(2 * num_columns, 2 * COLUMNS),
        (ctypes.c_uint32 * 3)(COLUMNS, rows, blocks),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        0,
        _LINES_OF_128,
        _PROMOTED_128,
        0,
    )
    if error:
        raise UnavailableError(f"one launch: cuTensorMapEncodeTiled returned error {error}")
    return ctypes.string_at(goal, _BYTES)


@cache
def _encode() -> Callable[..., int]:
    try:
        function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"one launch: expected a driver for CUDA 12: {error}") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4]
    function.restype = number
    encode: Callable[..., int] = function
    return encode
