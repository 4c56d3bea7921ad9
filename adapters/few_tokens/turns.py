"""Products with a large matrix: a program takes tiles in turn, and streams from one to the next."""

import triton
import triton.language as tl

from .tile import fetch, finish, is_taken, load_beside, rows_of_tile


@triton.jit(do_not_specialize=["num_tokens", "every", "num_squares"])
def turns_kernel(
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
    TAKEN: tl.constexpr,
    DEPTH: tl.constexpr,
    AHEAD: tl.constexpr,
    SQUARES: tl.constexpr,
    BIAS: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Up to TOKENS tokens, a power of two, 16 at least.

    Arguments are those of `block_kernel`; SQUARES is at least 1, and nothing can be added to.
    """
    tl.static_assert(SQUARES > 0 and not ADD)
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    PER_TILE: tl.constexpr = TAKEN // 2 if GATE else TAKEN
    first_tile, num_programs = tl.program_id(0), tl.num_programs(0)
    taken, column = is_taken(ROWS, TAKEN, GATE), tl.arange(0, DEPTH)
    lines = rows_of_tile(0, num_rows, ROWS, TAKEN, GATE).to(tl.int64)[:, None] * size
    if AHEAD > 0:
        ahead = tl.minimum(tl.arange(0, AHEAD // 64) * 64, size - 16)
        fetch(weight_ptr + first_tile.to(tl.int64) * PER_TILE * size + lines + ahead[None, :])
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    squares, old, gamma = load_beside(
        0, out_ptr, out_stride, gamma_ptr, squares_ptr, num_squares, squares_stride, num_tokens,
        every, TOKENS, SQUARES, ADD,
    )  # fmt: skip
    beside = tl.sum(squares, 0)[None, :], old, gamma
    place = tl.arange(0, TOKENS)
    # Places beyond the last token take others once more: one and the same would be a jam.
    token = (place % num_tokens + 1) * every - 1
    tokens = x_ptr + token[None, :] * x_stride + column[:, None]
    steps = tl.cdiv(size, DEPTH)
    turns = tl.cdiv(num_rows // PER_TILE - first_tile, num_programs)
    acc = tl.zeros((ROWS, TOKENS), tl.float32)
    for step in tl.range(0, turns * steps):
        tile, start = first_tile + step // steps * num_programs, step % steps * DEPTH
        there = column < size - start
        real = there[None, :]
        if TAKEN < ROWS:
            real &= taken[:, None]
        weights = weight_ptr + (tile.to(tl.int64) * PER_TILE * size + start)
        weight = tl.load(weights + lines + column[None, :], mask=real, other=0.0)
        x = tl.load(tokens + start, mask=there[:, None], other=0.0)
        acc = tl.dot(weight, x, acc)
        if start + DEPTH >= size:
            rows = rows_of_tile(tile, num_rows, ROWS, TAKEN, GATE)
            finish(
                acc, beside, tile, rows, bias_ptr, out_ptr, out_stride, scaled_ptr,
                new_squares_ptr, squares_stride, size, num_tokens, eps, TOKENS, ROWS, TAKEN,
                SQUARES, BIAS, GATE, ADD,
            )  # fmt: skip
            acc = tl.zeros((ROWS, TOKENS), tl.float32)
