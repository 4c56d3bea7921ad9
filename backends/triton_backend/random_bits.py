"""Random words inside kernels, bit for bit those of `acceptor.core.randomness`.

This module refuses to know what the words decide.
"""

import triton
import triton.language as tl

from ...core.randomness import Level, Stream
from .fast_log import fast_log

TARGET = tl.constexpr(int(Stream.TARGET))
ACCEPT = tl.constexpr(int(Stream.ACCEPT))
RECOVER = tl.constexpr(int(Stream.RECOVER))
BLOCK_LEVEL = tl.constexpr(int(Level.BLOCK))
TOKEN_LEVEL = tl.constexpr(int(Level.TOKEN))


@triton.jit
def random_words(seed, position, draft_index, stream, LEVEL: tl.constexpr, first, N: tl.constexpr):
    """The words of N consecutive candidates per row: [rows, N] uint32.

    Args:
        seed: scalar int64.
        position, draft_index, first: [rows] int32; first is each row's first candidate, divisible
            by 4.
        stream: scalar.
    """
    group = first[:, None] // 4 + tl.arange(0, N // 4)[None, :]
    zero = group * 0
    word_0, word_1, word_2, word_3 = tl.philox(
        seed,
        group.to(tl.uint32),
        (zero + position[:, None]).to(tl.uint32),
        (zero + (4 * stream + LEVEL)).to(tl.uint32),
        (zero + draft_index[:, None]).to(tl.uint32),
    )
    words = tl.join(tl.join(word_0, word_2), tl.join(word_1, word_3))
    return tl.reshape(words, [group.shape[0], N])


@triton.jit
def log_acceptance_uniform(seed, position, draft_index):
    """Log of each row's acceptance uniform: [rows] float32."""
    word = acceptance_bits(seed, position, draft_index)
    return tl.log((word.to(tl.float32) + 0.5) * 1.1920928955078125e-07)


@triton.jit
def acceptance_bits(seed, position, draft_index):
    """The 23 bits that each row's acceptance uniform is made of: [rows] int32."""
    zero = position * 0
    word, _, _, _ = tl.philox(
        seed,
        zero.to(tl.uint32),
        position.to(tl.uint32),
        (zero + 4 * ACCEPT + BLOCK_LEVEL).to(tl.uint32),
        draft_index.to(tl.uint32),
    )
    return (word >> 9).to(tl.int32)


@triton.jit
def exponential(words):
    """Standard exponentials made of random words, to a few float32 ulps.

    -log1p(-u) is a series where u is small and the fast logarithm would lose digits, and computed
    with the complement of u where u is large.
    """
    u = (words.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    complement = ((words ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    series = u * 0.0 + 1.0 / 12.0
    for term in tl.static_range(1, 12):
        series = series * u + 1.0 / (12 - term)
    rest = tl.where(u < 0.5, 1.0 - u, complement)
    return tl.where(u < 0.25, u * series, -fast_log(rest))


@triton.jit
def log_exponential(words):
    """Log of the standard exponentials made of random words."""
    return fast_log(exponential(words))
