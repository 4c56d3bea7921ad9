"""Products of few tokens with a matrix, and the operations between two of them.

Reading weights is the whole cost of these products. A program takes a few whole rows of the matrix,
requests them before the tokens are there, and adds, gates or normalises its results, so that no
further kernels are needed. The next product divides by a norm's root mean square: a product only
writes its results times the norm's weight, and sums of squares.

With more tokens (`block_kernel`) a program must take more rows, or reading tokens costs as much as
reading weights. If that leaves too few programs, the depth is split, and the last one to finish a
tile adds up all parts, always in the same order. If it leaves too many, each program takes several
tiles in turn, and loads the next one while it computes.
"""

import triton
import triton.language as tl

from .tile import fetch, finish, is_taken, load_beside, rows_of_tile


@triton.jit
def embed_kernel(
    ids_ptr, embedding_ptr, gamma_ptr, sums_ptr, scaled_ptr, size, eps, COLUMNS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Rows of the embedding for ids [tokens] int64, and their norm; COLUMNS: size or more."""
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    column, token = tl.arange(0, COLUMNS), tl.program_id(0)
    there, goal = column < size, token * size + column
    row_ptr = embedding_ptr + tl.load(ids_ptr + token) * size
    sums = tl.load(row_ptr + column, mask=there, other=0.0)
    tl.store(sums_ptr + goal, sums, mask=there)
    wide = sums.to(tl.float32)
    wide *= tl.rsqrt(tl.sum(wide * wide, 0) / size + eps)
    wide *= tl.load(gamma_ptr + column, mask=there, other=0.0).to(tl.float32)
    tl.store(scaled_ptr + goal, wide.to(sums.dtype), mask=there)


@triton.jit(do_not_specialize=["num_tokens", "every", "num_squares"])
def matrix_kernel(
    product,
    num_squares,
    num_tokens,
    every,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
    AHEAD: tl.constexpr,
    SQUARES: tl.constexpr,
    GATE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Up to TOKENS tokens, a power of two, on tensor cores; each warp takes its own columns.

    Args:
        product: see `Product`, as for num_squares, every and SQUARES.
        ROWS: rows of the matrix at a time.
        DEPTH: columns that each warp takes at a time.
        PARTS: the number of warps.
        AHEAD: columns of a row to be fetched into the level-2 cache before the tokens are there.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    rows = rows_of_tile(tl.program_id(0), product.num_rows, ROWS, ROWS, GATE)
    column = tl.arange(0, PARTS)[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    if AHEAD > 0:
        ahead = tl.minimum(tl.arange(0, AHEAD // 64) * 64, product.size - 16)
        fetch(product.weight + rows.to(tl.int64)[:, None] * product.size + ahead[None, :])
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    beside = load_beside(product, rows, num_squares, num_tokens, every, TOKENS, SQUARES)
    weights = product.weight + rows.to(tl.int64)[None, :, None] * product.size + column[:, None, :]
    place = tl.arange(0, TOKENS)
    token = (tl.minimum(place, num_tokens - 1) + 1) * every - 1
    tokens = product.x + token[None, None, :] * product.x_stride + column[:, :, None]
    real = (place < num_tokens)[None, None, :]
    acc = tl.zeros((PARTS, ROWS, TOKENS), tl.float32)
    for start in tl.range(0, product.size, PARTS * DEPTH):
        there = column < product.size - start
        weight = tl.load(weights + start, mask=there[:, None, :], other=0.0)
        x = tl.load(tokens + start, mask=there[:, :, None] & real, other=0.0)
        acc = tl.dot(weight, x, acc)
    acc, tile = tl.sum(acc, 0), tl.program_id(0)
    finish(product, acc, beside, tile, rows, num_tokens, TOKENS, ROWS, ROWS, SQUARES, GATE)


@triton.jit(do_not_specialize=["num_tokens", "every", "num_squares"])
def block_kernel(
    product,
    num_squares,
    num_tokens,
    every,
    parts_ptr,
    counts_ptr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    TAKEN: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    TURNS: tl.constexpr,
    FLIPS: tl.constexpr,
    AHEAD: tl.constexpr,
    SQUARES: tl.constexpr,
    GATE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Up to TOKENS tokens, a power of two, 16 at least; a grid of [programs, SPLITS].

    Args:
        parts_ptr: [tiles, SPLITS, ROWS, TOKENS] float32, scratch.
        counts_ptr: [tiles] int32, zeros, and zeros again afterwards.
        ROWS: rows of a tile, a power of two.
        TAKEN: how many of them are rows of the matrix, so that programs have even shares.
        DEPTH: columns at a time.
        SPLITS: how many programs share the columns of a tile.
        TURNS: whether programs take several tiles; SPLITS is then 1, and nothing is added to.
        FLIPS: whether tensor cores get tokens first; reads less if there are far more rows.
        AHEAD: as for `matrix_kernel`, of each program's own columns.

    The others are those of `matrix_kernel`.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    PER_TILE: tl.constexpr = TAKEN // 2 if GATE else TAKEN
    size, num_rows = product.size, product.num_rows
    first_tile, taken = tl.program_id(0), is_taken(ROWS, TAKEN, GATE)
    per_split = tl.cdiv(size, SPLITS * DEPTH) * DEPTH
    first = tl.program_id(1) * per_split
    column = tl.arange(0, DEPTH)
    lines = rows_of_tile(0, num_rows, ROWS, TAKEN, GATE).to(tl.int64)[:, None] * size
    weights = product.weight + first_tile.to(tl.int64) * PER_TILE * size + lines
    if AHEAD > 0:
        fetch(weights + tl.minimum(first + tl.arange(0, AHEAD // 64) * 64, size - 16)[None, :])
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    rows = rows_of_tile(first_tile, num_rows, ROWS, TAKEN, GATE)
    beside = load_beside(product, rows, num_squares, num_tokens, every, TOKENS, SQUARES)
    place = tl.arange(0, TOKENS)
    # Places beyond the last token read different tokens again; all reading one would be slow.
    token = (place % num_tokens + 1) * every - 1
    tokens = product.x + token[None, :] * product.x_stride + column[:, None]
    acc = tl.zeros((TOKENS, ROWS) if FLIPS else (ROWS, TOKENS), tl.float32)
    if TURNS:
        tl.static_assert(SPLITS == 1 and product.scaled is None)
        if SQUARES > 0:
            beside = tl.sum(beside[0], 0)[None, :], beside[1], beside[2]
        steps = tl.cdiv(size, DEPTH)
        turns = tl.cdiv(num_rows // PER_TILE - first_tile, tl.num_programs(0))
        for step in tl.range(0, turns * steps):
            tile = first_tile + step // steps * tl.num_programs(0)
            start = step % steps * DEPTH
            there = column < size - start
            real = there[None, :] & taken[:, None]
            there_ptr = product.weight + (tile.to(tl.int64) * PER_TILE * size + start)
            weight = tl.load(there_ptr + lines + column[None, :], mask=real, other=0.0)
            x = tl.load(tokens + start, mask=there[:, None], other=0.0)
            if FLIPS:
                acc = tl.dot(tl.trans(x), tl.trans(weight), acc)
            else:
                acc = tl.dot(weight, x, acc)
            if start + DEPTH >= size:
                rows = rows_of_tile(tile, num_rows, ROWS, TAKEN, GATE)
                finish(
                    product, tl.trans(acc) if FLIPS else acc, beside, tile, rows, num_tokens,
                    TOKENS, ROWS, TAKEN, SQUARES, GATE,
                )  # fmt: skip
                acc = tl.zeros_like(acc)
    else:
        weights += column[None, :]
        for start in tl.range(first, tl.minimum(first + per_split, size), DEPTH):
            there = column < size - start
            real = there[None, :] & taken[:, None]
            weight = tl.load(weights + start, mask=real, other=0.0)
            x = tl.load(tokens + start, mask=there[:, None], other=0.0)
            if FLIPS:
                acc = tl.dot(tl.trans(x), tl.trans(weight), acc)
            else:
                acc = tl.dot(weight, x, acc)
        if FLIPS:
            acc = tl.trans(acc)
        if SPLITS > 1:
            inside = tl.arange(0, ROWS)[:, None] * TOKENS + place[None, :]
            parts_ptr += first_tile * (SPLITS * ROWS * TOKENS) + inside
            tl.store(parts_ptr + tl.program_id(1) * (ROWS * TOKENS), acc)
            tl.debug_barrier()
            before = tl.atomic_add(counts_ptr + first_tile, 1, sem="acq_rel")
            if before < SPLITS - 1:
                return
            tl.store(counts_ptr + first_tile, 0)
            acc = tl.zeros((ROWS, TOKENS), tl.float32)
            for part in tl.static_range(SPLITS):
                acc += tl.load(parts_ptr + part * (ROWS * TOKENS), cache_modifier=".cg")
        finish(
            product, acc, beside, first_tile, rows, num_tokens, TOKENS, ROWS, TAKEN, SQUARES, GATE
        )
