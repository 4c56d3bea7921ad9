"""The parts that all products share: which rows a program takes, and how it ends."""

import triton
import triton.language as tl


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
    """Load what `finish` needs besides products, before these: squares, sums, gamma."""
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
    tile,
    rows,
    bias_ptr,
    out_ptr,
    out_stride,
    scaled_ptr,
    squares_ptr,
    squares_stride,
    size,
    num_tokens,
    eps,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    TAKEN: tl.constexpr,
    SQUARES: tl.constexpr,
    BIAS: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
):
    """Normalise, add, gate and store a tile [ROWS, TOKENS], of which TAKEN rows are there.

    With ADD these are all.
    """
    tl.static_assert(TAKEN == ROWS or not ADD)
    squares, old, gamma = beside
    place = tl.arange(0, TOKENS)
    real, taken = (place < num_tokens)[None, :], is_taken(ROWS, TAKEN, GATE)[:, None]
    if SQUARES > 0:
        out *= tl.rsqrt(tl.sum(squares, 0) / size + eps)[None, :]
    if BIAS:
        out += tl.load(bias_ptr + rows).to(tl.float32)[:, None]
    if GATE:
        halves = tl.permute(tl.reshape(out, (2, ROWS // 2, TOKENS)), (1, 2, 0))
        gate, up = tl.split(halves)
        out = gate * tl.sigmoid(gate) * up
        # From here on as if a gate were a row's own.
        rows = rows_of_tile(tile, 0, ROWS // 2, TAKEN // 2, False)
        taken = is_taken(ROWS // 2, TAKEN // 2, False)[:, None]
    goal = place[None, :] * out_stride + rows[:, None]
    dtype = out_ptr.dtype.element_ty
    if ADD:
        out = (out + old.to(tl.float32)).to(dtype).to(tl.float32)
        scaled = out * gamma.to(tl.float32)[:, None]
        tl.store(scaled_ptr + goal, scaled.to(dtype), mask=real & taken)
        squares_goal = squares_ptr + tile * squares_stride + place
        tl.store(squares_goal, tl.sum(out * out, 0), mask=place < num_tokens)
    tl.store(out_ptr + goal, out.to(dtype), mask=real & taken)
