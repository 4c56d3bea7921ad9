"""What every product does besides multiplying: which rows a program takes, and how it ends.

This module refuses to multiply.
"""

import triton
import triton.language as tl


@triton.jit
def rows_of_tile(num_rows, ROWS: tl.constexpr, GATE: tl.constexpr):
    """With GATE half of them are gates, and half what the gates are for."""
    WIDTH: tl.constexpr = ROWS // 2 if GATE else ROWS
    row = tl.arange(0, ROWS)
    return tl.program_id(0) * WIDTH + row % WIDTH + row // WIDTH * num_rows


@triton.jit
def fetch(pointers):
    """Bring lines of 128 bytes into the level-2 cache; nothing waits for them."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def load_beside(
    rows,
    out_ptr,
    out_stride,
    gamma_ptr,
    squares_ptr,
    num_squares,
    squares_stride,
    num_tokens,
    every,
    TOKENS: tl.constexpr,
    SQUARES: tl.constexpr,
    ADD: tl.constexpr,
):
    """What `finish` needs besides products, asked for before them: squares, sums, gamma."""
    place = tl.arange(0, TOKENS)
    real = (place < num_tokens)[None, :]
    squares, old, gamma = 0.0, 0.0, 0.0
    if SQUARES > 0:
        part, token = tl.arange(0, SQUARES)[:, None], (place + 1) * every - 1
        lines = squares_ptr + part * squares_stride + token[None, :]
        squares = tl.load(lines, mask=(part < num_squares) & real, other=0.0)
    if ADD:
        old = tl.load(out_ptr + place[None, :] * out_stride + rows[:, None], mask=real, other=0.0)
        gamma = tl.load(gamma_ptr + rows)
    return squares, old, gamma


@triton.jit
def finish(
    out,
    beside,
    rows,
    bias_ptr,
    out_ptr,
    out_stride,
    scaled_ptr,
    new_squares_ptr,
    squares_stride,
    size,
    num_tokens,
    eps,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    SQUARES: tl.constexpr,
    BIAS: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
):
    """Normalise, add, gate and store a tile [ROWS, TOKENS]."""
    squares, old, gamma = beside
    place = tl.arange(0, TOKENS)
    real = place < num_tokens
    if SQUARES > 0:
        out *= tl.rsqrt(tl.sum(squares, 0) / size + eps)[None, :]
    if BIAS:
        out += tl.load(bias_ptr + rows).to(tl.float32)[:, None]
    if GATE:
        halves = tl.permute(tl.reshape(out, (2, ROWS // 2, TOKENS)), (1, 2, 0))
        gate, up = tl.split(halves)
        out = gate * tl.sigmoid(gate) * up
        rows = tl.program_id(0) * (ROWS // 2) + tl.arange(0, ROWS // 2)
    goal = place[None, :] * out_stride + rows[:, None]
    dtype = out_ptr.dtype.element_ty
    if ADD:
        out = (out + old.to(tl.float32)).to(dtype).to(tl.float32)
        scaled = out * gamma.to(tl.float32)[:, None]
        tl.store(scaled_ptr + goal, scaled.to(dtype), mask=real[None, :])
        squares_goal = new_squares_ptr + tl.program_id(0) * squares_stride + place
        tl.store(squares_goal, tl.sum(out * out, 0), mask=real)
    tl.store(out_ptr + goal, out.to(dtype), mask=real[None, :])
