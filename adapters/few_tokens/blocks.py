"""Products of more tokens with a matrix: tiles of many rows on tensor cores, and a split depth.

With more tokens a program must take more rows, or reading tokens costs as much as reading weights.
The depth is split where that leaves too few programs. The last one to finish a tile adds up all
parts, always in the same order.
"""

import triton
import triton.language as tl

from .tile import fetch, finish, is_taken, load_beside, rows_of_tile


@triton.jit(do_not_specialize=["num_tokens", "every", "num_squares"])
def block_kernel(
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
    parts_ptr,
    counts_ptr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    TAKEN: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    SQUARES: tl.constexpr,
    BIAS: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Up to TOKENS tokens, a power of two, 16 at least; a grid of [tiles, SPLITS].

    Args:
        parts_ptr: [tiles, SPLITS, ROWS, TOKENS] float32, scratch.
        counts_ptr: [tiles] int32, zeros, and zeros again afterwards.
        ROWS: of a tile, a power of two.
        TAKEN: how many of them there are of the matrix, so that programs have even shares.
        DEPTH: columns at a time.
        SPLITS: how many programs share the columns of a tile.
        AHEAD: as for `matrix_kernel`, of each program's own columns.

    The others are those of `matrix_kernel`.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    tile, taken = tl.program_id(0), is_taken(ROWS, TAKEN, GATE)
    rows = rows_of_tile(tile, num_rows, ROWS, TAKEN, GATE)
    per_split = tl.cdiv(size, SPLITS * DEPTH) * DEPTH
    first = tl.program_id(1) * per_split
    column = tl.arange(0, DEPTH)
    lines = weight_ptr + rows.to(tl.int64)[:, None] * size
    if AHEAD > 0:
        fetch(lines + tl.minimum(first + tl.arange(0, AHEAD // 64) * 64, size - 16)[None, :])
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    beside = load_beside(
        rows, out_ptr, out_stride, gamma_ptr, squares_ptr, num_squares, squares_stride, num_tokens,
        every, TOKENS, SQUARES, ADD,
    )  # fmt: skip
    place = tl.arange(0, TOKENS)
    # Places beyond the last token take others once more: one and the same would be a jam.
    token = (place % num_tokens + 1) * every - 1
    weights = lines + column[None, :]
    tokens = x_ptr + token[None, :] * x_stride + column[:, None]
    acc = tl.zeros((ROWS, TOKENS), tl.float32)
    for start in tl.range(first, tl.minimum(first + per_split, size), DEPTH):
        there = column < size - start
        real = there[None, :]
        if TAKEN < ROWS:
            real &= taken[:, None]
        weight = tl.load(weights + start, mask=real, other=0.0)
        x = tl.load(tokens + start, mask=there[:, None], other=0.0)
        acc = tl.dot(weight, x, acc)
    if SPLITS > 1:
        inside = tl.arange(0, ROWS)[:, None] * TOKENS + place[None, :]
        parts_ptr += tl.program_id(0) * (SPLITS * ROWS * TOKENS) + inside
        tl.store(parts_ptr + tl.program_id(1) * (ROWS * TOKENS), acc)
        tl.debug_barrier()
        before = tl.atomic_add(counts_ptr + tl.program_id(0), 1, sem="acq_rel")
        if before < SPLITS - 1:
            return
        tl.store(counts_ptr + tl.program_id(0), 0)
        acc = tl.zeros((ROWS, TOKENS), tl.float32)
        for part in tl.static_range(SPLITS):
            acc += tl.load(parts_ptr + part * (ROWS * TOKENS), cache_modifier=".cg")
    finish(
        acc, beside, tile, rows, bias_ptr, out_ptr, out_stride, scaled_ptr, new_squares_ptr,
        squares_stride, size, num_tokens, eps, TOKENS, ROWS, TAKEN, SQUARES, BIAS, GATE, ADD,
    )  # fmt: skip
