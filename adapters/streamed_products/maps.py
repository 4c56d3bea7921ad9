"""Tensor maps: how a GPU cuts matrices into boxes and copies them to shared memory by itself.

This module refuses to launch anything.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

from attrs import frozen
from torch import Tensor

from ...core.errors import UnavailableError
from .forms import COLUMNS, SIXTEEN, Form

_BYTES, _ALIGNED = 128, 64
_BFLOAT16, _LINES_OF_128, _PROMOTED_128 = 9, 3, 2
_LINE_BYTES = 2 * COLUMNS
_EIGHT = 8


@frozen
class Cut:
    """A tensor of bfloat16 and its boxes, the axis whose numbers lie side by side first.

    Attributes:
        pointer: its address.
        sizes: of its axes.
        strides: in bytes, of all axes but the first.
        box: sizes of a box.
    """

    pointer: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


def cut_of_weight(weight: Tensor, form: Form, *, gate: bool) -> Cut:
    """Of [rows, columns]; a box is a tile's rows in a stage's blocks of columns.

    Sixteen rows are two times eight, so that a thread, which has a number of either eight, has two
    rows that lie side by side or, with gate, a gate and what the gate is for.
    """
    rows, columns = weight.shape
    line = 2 * columns
    of_eight, of_half, of_sixteen = (
        (line, rows // 2 * line, _EIGHT * line) if gate else (2 * line, line, SIXTEEN * line)
    )
    return Cut(
        weight.data_ptr(),
        (COLUMNS, _EIGHT, columns // COLUMNS, 2, rows // SIXTEEN),
        (of_eight, _LINE_BYTES, of_half, of_sixteen),
        (COLUMNS, _EIGHT, form.blocks, 2, form.rows // SIXTEEN),
    )


def cut_of_tokens(x: Tensor, form: Form, num_tokens: int, every: int) -> Cut:
    """Of every so manieth of [tokens, columns], the last of each; a box is all of them."""
    stride = 2 * x.stride(0)
    return Cut(
        x.data_ptr() + (every - 1) * stride,
        (COLUMNS, num_tokens, x.shape[1] // COLUMNS),
        (every * stride, _LINE_BYTES),
        (COLUMNS, form.tokens, form.blocks),
    )


def tensor_map(cut: Cut) -> bytes:
    """What the GPU is given.

    Raises:
        UnavailableError: there is no driver that makes it, or it refuses.
    """
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNED)
    goal = -(-ctypes.addressof(memory) // _ALIGNED) * _ALIGNED
    rank = len(cut.sizes)
    error = _encode()(
        goal,
        _BFLOAT16,
        rank,
        cut.pointer,
        _numbers(ctypes.c_uint64, cut.sizes),
        _numbers(ctypes.c_uint64, cut.strides),
        _numbers(ctypes.c_uint32, cut.box),
        _numbers(ctypes.c_uint32, [1] * rank),
        0,
        _LINES_OF_128,
        _PROMOTED_128,
        0,
    )
    if error:
        raise UnavailableError(f"streamed products: cuTensorMapEncodeTiled returned error {error}")
    return ctypes.string_at(goal, _BYTES)


def _numbers(
    kind: type[ctypes.c_uint32] | type[ctypes.c_uint64], numbers: Sequence[int]
) -> "ctypes.Array[ctypes.c_uint32] | ctypes.Array[ctypes.c_uint64]":
    return (kind * len(numbers))(*numbers)


@cache
def _encode() -> Callable[..., int]:
    try:
        function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"streamed products: expected a driver: {error}") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4]
    function.restype = number
    encode: Callable[..., int] = function
    return encode
