"""The parts that all products share: which rows a program takes, and how it ends."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Product(NamedTuple):
    """The arguments of a product's kernel; code for a field that is None is compiled away."""

    x: Any
    """[tokens, size]; the last of every `every` tokens is taken."""
    x_stride: Any
    eps: Any
    """The norm's epsilon."""
    weight: Any
    """[num_rows, size], or with GATE twice as many rows, gates first."""
    bias: Any
    """One number per row of the matrix, or None."""
    out: Any
    """[num_tokens, num_rows]."""
    out_stride: Any
    scaled: Any
    """`out` times gamma, or None if `out` is overwritten; else the product is added to it."""
    gamma: Any
    """[num_rows]."""
    squares: Any
    """[num_squares, squares_stride] float32: partial sums of the squares of each token's x before
    it was scaled. SQUARES is num_squares or more, 0 for none. A launch that adds writes those of
    `out` here, and reads none."""
    num_rows: Any
    size: Any
    squares_stride: Any


@triton.jit
def rows_of_tile(tile, num_rows, ROWS: tl.constexpr, TAKEN: tl.constexpr, GATE: tl.constexpr):
    """The rows of the matrix that a tile takes, ROWS of them; `is_taken` says which count.

    With GATE half of them are gates, and the other half the rows that these gate.
    """
    HALVES: tl.constexpr = 2 if GATE else 1
    row = tl.arange(0, ROWS) % (ROWS // HALVES)
    half = tl.arange(0, ROWS) // (ROWS // HALVES)
    # The surplus may read any rows: the last one again.
    row = tl.minimum(row, TAKEN // HALVES - 1)
    return tile * (TAKEN // HALVES) + row + half * num_rows


@triton.jit
def is_taken(ROWS: tl.constexpr, TAKEN: tl.constexpr, GATE: tl.constexpr):
    """Which of a tile's ROWS rows count: TAKEN of them, with GATE equally many of each half."""
    HALVES: tl.constexpr = 2 if GATE else 1
    return tl.arange(0, ROWS) % (ROWS // HALVES) < TAKEN // HALVES


@triton.jit
def fetch(pointers):
    """Bring lines of 128 bytes into the level-2 cache; nothing waits for them."""
    code: tl.constexpr = "prefetch.global.L2 [$1]; mov.u32 $0, 0;"
    tl.inline_asm_elementwise(code, "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def load_beside(product, rows, num_squares, num_tokens, every, TOKENS, SQUARES):
    """Load what `finish` needs besides products, before these: squares, sums, gamma."""
    place = tl.arange(0, TOKENS)
    real = (place < num_tokens)[None, :]
    squares, old, gamma = 0.0, 0.0, 0.0
    if SQUARES > 0:
        part, token = tl.arange(0, SQUARES)[:, None], (place + 1) * every - 1
        lines = product.squares + part * product.squares_stride + token[None, :]
        squares = tl.load(lines, mask=(part < num_squares) & real, other=0.0)
    if product.scaled is not None:
        sums = product.out + place[None, :] * product.out_stride + rows[:, None]
        old = tl.load(sums, mask=real, other=0.0)
        gamma = tl.load(product.gamma + rows)
    return squares, old, gamma


@triton.jit
def finish(product, acc, beside, tile, rows, num_tokens, TOKENS, ROWS, TAKEN, SQUARES, GATE):
    """Normalise, add, gate and store a tile [ROWS, TOKENS], of which TAKEN rows exist.

    All of them exist if the product is added to `out`.
    """
    tl.static_assert(TAKEN == ROWS or product.scaled is None)
    squares, old, gamma = beside
    place = tl.arange(0, TOKENS)
    real, taken = (place < num_tokens)[None, :], is_taken(ROWS, TAKEN, GATE)[:, None]
    if SQUARES > 0:
        acc *= tl.rsqrt(tl.sum(squares, 0) / product.size + product.eps)[None, :]
    if product.bias is not None:
        acc += tl.load(product.bias + rows).to(tl.float32)[:, None]
    if GATE:
        halves = tl.permute(tl.reshape(acc, (2, ROWS // 2, TOKENS)), (1, 2, 0))
        gate, up = tl.split(halves)
        acc = gate * tl.sigmoid(gate) * up
        # From here on as if a gate were a row's own.
        rows = rows_of_tile(tile, 0, ROWS // 2, TAKEN // 2, False)
        taken = is_taken(ROWS // 2, TAKEN // 2, False)[:, None]
    goal = place[None, :] * product.out_stride + rows[:, None]
    dtype = product.out.dtype.element_ty
    if product.scaled is not None:
        acc = (acc + old.to(tl.float32)).to(dtype).to(tl.float32)
        scaled = acc * gamma.to(tl.float32)[:, None]
        tl.store(product.scaled + goal, scaled.to(dtype), mask=real & taken)
        squares_goal = product.squares + tile * product.squares_stride + place
        tl.store(squares_goal, tl.sum(acc * acc, 0), mask=place < num_tokens)
    tl.store(product.out + goal, acc.to(dtype), mask=real & taken)
