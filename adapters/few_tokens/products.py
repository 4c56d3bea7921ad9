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
def vector_kernel(
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
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    SQUARES: tl.constexpr,
    BIAS: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """One token, in float32 arithmetic.

    Args:
        x_ptr: [tokens, size]; every `every`-th is taken, the last of each.
        weight_ptr: [num_rows, size], or with GATE twice as many rows, gates first.
        bias_ptr: as many; with BIAS.
        out_ptr: [1, num_rows]; ADD adds to it.
        scaled_ptr: like out, times gamma [num_rows]; with ADD.
        squares_ptr: [num_squares, squares_stride] float32: their sum over the first axis is the sum
            of x squared before it was scaled; with SQUARES, at least as many, else 0.
        new_squares_ptr: the same of out; with ADD.
        num_tokens: of out.
        eps: of the norm.
        ROWS: of the matrix at a time.
        DEPTH: columns at a time, 256 for each warp.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    rows = rows_of_tile(tl.program_id(0), num_rows, ROWS, ROWS, GATE)
    column = tl.arange(0, DEPTH)
    weights = weight_ptr + rows.to(tl.int64)[:, None] * size + column[None, :]
    ahead = _once(weights, column < size)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    beside = load_beside(
        rows, out_ptr, out_stride, gamma_ptr, squares_ptr, num_squares, squares_stride, num_tokens,
        every, 1, SQUARES, ADD,
    )  # fmt: skip
    x_ptr += (every - 1) * x_stride + column
    acc = tl.zeros((ROWS, DEPTH // 8), tl.float32)
    for start in tl.range(0, size, DEPTH):
        weight = ahead.to(tl.float32)
        ahead = _once(weights + start + DEPTH, column < size - DEPTH - start)
        acc += _by_eights(weight, x_ptr + start, column < size - start, ROWS, DEPTH)
    finish(
        tl.sum(acc, 1)[:, None], beside, tl.program_id(0), rows, bias_ptr, out_ptr, out_stride,
        scaled_ptr, new_squares_ptr, squares_stride, size, num_tokens, eps, 1, ROWS, ROWS, SQUARES,
        BIAS, GATE, ADD,
    )  # fmt: skip


@triton.jit
def _once(weights, there):
    """Weights, which leave the cache first: the next token's need what else is there."""
    return tl.load(weights, mask=there[None, :], other=0.0, eviction_policy="evict_first")


@triton.jit
def _by_eights(weight, x_ptr, there, ROWS: tl.constexpr, DEPTH: tl.constexpr):
    """Products with a token, eight of one thread added up: [ROWS, DEPTH / 8]."""
    x = tl.load(x_ptr, mask=there, other=0.0).to(tl.float32)
    return tl.sum(tl.reshape(weight * x[None, :], (ROWS, DEPTH // 8, 8)), 2)


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
        DEPTH: columns at a time, of each warp.
        PARTS: as many as there are warps.
        AHEAD: columns of a row to be fetched into the level-2 cache before the tokens are there.

    The others are those of `vector_kernel`.
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


@triton.jit
def embedding_kernel(
    token_ids_ptr,
    request_stride,
    token_stride,
    num_tokens,
    embedding_ptr,
    gamma_ptr,
    out_ptr,
    scaled_ptr,
    squares_ptr,
    size,
    SIZE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """A token's row of the embedding, [size], as `vector_kernel` writes its own output.

    Args:
        token_ids_ptr: [num_reqs, num_tokens] int64, with these strides.
        embedding_ptr: [vocab_size, size].
        SIZE: size or more, a power of two.
        OVERLAPS: whether the kernel behind it starts early; it does not itself, as kernels of a
            layer read positions before they wait.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    token, place = tl.program_id(0), tl.arange(0, SIZE)
    real = place < size
    request, of_request = token // num_tokens, token % num_tokens
    row = tl.load(token_ids_ptr + request * request_stride + of_request * token_stride)
    out = tl.load(embedding_ptr + row * size + place, mask=real, other=0.0)
    gamma = tl.load(gamma_ptr + place, mask=real, other=0.0).to(tl.float32)
    wide = out.to(tl.float32)
    tl.store(out_ptr + token * size + place, out, mask=real)
    tl.store(scaled_ptr + token * size + place, (wide * gamma).to(out.dtype), mask=real)
    tl.store(squares_ptr + token, tl.sum(wide * wide, 0))
