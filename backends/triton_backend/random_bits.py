"""Random words inside kernels, bit for bit those of `acceptor.core.randomness`."""

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from ...core.randomness import Level, Stream
from .assembly import INTERPRETED

ACCEPT = tl.constexpr(int(Stream.ACCEPT))
RECOVER = tl.constexpr(int(Stream.RECOVER))
BLOCK_LEVEL = tl.constexpr(int(Level.BLOCK))
TOKEN_LEVEL = tl.constexpr(int(Level.TOKEN))


@triton.jit
def arrivals(noise, LEVEL: tl.constexpr, first, N: tl.constexpr):
    """The exponentials that N consecutive candidates race against: [N] float32.

    `noise` holds scalars: seed, position, draft index and stream. `first` is a scalar, the first
    candidate, divisible by 4. N is at least 4.
    """
    group = first // 4 + tl.arange(0, N // 4)
    word_0, word_1, word_2, word_3 = _words(noise, group, LEVEL)
    words = tl.join(tl.join(word_0, word_2), tl.join(word_1, word_3))
    return exponential(tl.reshape(words, [N]))


@triton.jit
def acceptance_bits(seed, position, draft_index):
    """The 23 bits of an acceptance uniform: int32."""
    word, _, _, _ = _words((seed, position, draft_index, ACCEPT), position * 0, BLOCK_LEVEL)
    return (word >> 9).to(tl.int32)


@triton.jit
def _words(noise, group, LEVEL: tl.constexpr):
    seed, position, draft_index, stream = noise
    others = position, 4 * stream + LEVEL, draft_index
    counter = [(group * 0 + word).to(tl.uint32) for word in others]
    return tl.philox(seed, group.to(tl.uint32), *counter)


@triton.jit
def log_acceptance_uniform(seed, position, draft_index):
    """The log of an acceptance uniform: float32."""
    word = acceptance_bits(seed, position, draft_index)
    return tl.log((word.to(tl.float32) + 0.5) * 1.1920928955078125e-07)


@triton.jit
def exponential(words):
    """Standard exponentials from random words: -log1p(-u) to a few float32 ulps.

    A polynomial where u is small, because the smallest exponentials decide races; elsewhere the
    logarithm of 1 - u.
    """
    u = (words.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    complement = ((words ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    # The best polynomial of degree 6 for -log1p(-u) / u up to 1/4; its relative error is 1.2e-7.
    ratio = 0.3339090645 * u + 0.0895203874
    ratio = ratio * u + 0.2142524570
    ratio = ratio * u + 0.2486901879
    ratio = ratio * u + 0.3333897591
    ratio = ratio * u + 0.4999991059
    ratio = ratio * u + 1.0
    if INTERPRETED:
        log = tl.log(complement)
    else:
        # The hardware's logarithm: its absolute error is 4e-7 near 1.
        log = libdevice.fast_logf(complement)
    return tl.where(u < 0.25, ratio * u, -log)
