"""Products of few tokens with a matrix, and what lies between two of them.

Reading weights is the whole cost of these products. A program takes a few whole rows of the matrix,
requests them before the tokens are there, and adds, gates or normalises its results, so that no
further kernels are needed. A norm's root mean square is left to the reader: a product writes its
sums times the norm's weight, and sums of squares, and the next product divides.
"""

import triton
import triton.language as tl

from .tile import fetch, finish, load_beside, rows_of_tile


@triton.jit(do_not_specialize=["num_tokens", "every", "num_squares"])
def matrix_kernel(
    x_ptr,
    x_stride,
    weight_ptr,
    bias_ptr,
    out_ptr,
    out_stride,
    scaled_ptr,
    gamma_ptr,
    squares_ptr,
    num_squares,
    new_squares_ptr,
    squares_stride,
    num_rows,
    size,
    num_tokens,
    every,
    eps,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
    AHEAD: tl.constexpr,
    SQUARES: tl.constexpr,
    BIAS: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Up to TOKENS tokens, a power of two, on tensor cores; each warp takes its own columns.

    Args:
        x_ptr: [tokens, size]; every `every`-th is taken, the last of each.
        weight_ptr: [num_rows, size], or with GATE twice as many rows, gates first.
        bias_ptr: as many; with BIAS.
        out_ptr: [num_tokens, num_rows]; ADD adds to it.
        scaled_ptr: like out, times gamma [num_rows]; with ADD.
        squares_ptr: [num_squares, squares_stride] float32: their sum over the first axis is the sum
            of x squared before it was scaled; with SQUARES, at least as many, else 0.
        new_squares_ptr: the same of out; with ADD.
        eps: of the norm.
        ROWS: of the matrix at a time.
        DEPTH: columns at a time, of each warp.
        PARTS: as many as there are warps.
        AHEAD: columns of a row to be fetched into the level-2 cache before the tokens are there.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    rows = rows_of_tile(tl.program_id(0), num_rows, ROWS, ROWS, GATE)
    column = tl.arange(0, PARTS)[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    if AHEAD > 0:
        ahead = tl.minimum(tl.arange(0, AHEAD // 64) * 64, size - 16)
        fetch(weight_ptr + rows.to(tl.int64)[:, None] * size + ahead[None, :])
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    beside = load_beside(
        rows, out_ptr, out_stride, gamma_ptr, squares_ptr, num_squares, squares_stride, num_tokens,
        every, TOKENS, SQUARES, ADD,
    )  # fmt: skip
    weights = weight_ptr + rows.to(tl.int64)[None, :, None] * size + column[:, None, :]
    place = tl.arange(0, TOKENS)
    token = (tl.minimum(place, num_tokens - 1) + 1) * every - 1
    tokens = x_ptr + token[None, None, :] * x_stride + column[:, :, None]
    real = (place < num_tokens)[None, None, :]
    acc = tl.zeros((PARTS, ROWS, TOKENS), tl.float32)
    for start in tl.range(0, size, PARTS * DEPTH):
        there = column < size - start
        weight = tl.load(weights + start, mask=there[:, None, :], other=0.0)
        x = tl.load(tokens + start, mask=there[:, :, None] & real, other=0.0)
        acc = tl.dot(weight, x, acc)
    finish(
        tl.sum(acc, 0), beside, tl.program_id(0), rows, bias_ptr, out_ptr, out_stride, scaled_ptr,
        new_squares_ptr, squares_stride, size, num_tokens, eps, TOKENS, ROWS, ROWS, SQUARES, BIAS,
        GATE, ADD,
    )  # fmt: skip
