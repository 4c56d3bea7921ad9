"""Random words inside kernels, bit for bit those of `acceptor.core.randomness`.

This module refuses to know what the words decide.
"""

import triton
import triton.language as tl

from ...core.randomness import Level, Stream

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
def log_exponential(words):
    """Log of the standard exponentials made of random words, to a few float32 ulps.

    -log1p(-u) is computed with the complement of u where u is large, and as
    u * log(1 - u) / ((1 - u) - 1) where it is small: the rounding of 1 - u cancels.
    """
    u = (words.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    complement = ((words ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    small = u < 0.5
    rest = tl.where(small, 1.0 - u, complement)
    log_rest = -tl.log(rest)
    lost = 1.0 - rest
    corrected = tl.where(lost > 0.0, log_rest * (u / tl.where(lost > 0.0, lost, 1.0)), u)
    return tl.log(tl.where(small, corrected, log_rest))
