"""Reads two-byte logits of rows that begin anywhere, as those of an odd vocabulary do.

Loads of single logits would be eight times as many, and leave neighbours in different threads. With
256 requests of 32,001 tokens top-k takes 18% less time than with these, top-p 10% less.
"""

import triton
import triton.language as tl

BEHIND = tl.constexpr(8)
"""The most logits behind those of blocks that are read."""


@triton.jit
def realigned(base, pair):
    """Logits of pairs of neighbouring ids, in the row's dtype: [blocks, 2 N].

    They are cut from the aligned 16 bytes that hold the first of every 8, and from the next.

    Args:
        base: the address of the row's first logit.
        pair: each pair's first id // 2, ascending from a multiple of 4: [blocks, N] int32.
    """
    address = base.to(tl.int64)
    skipped = (address & 15).to(tl.int32)
    words = tl.multiple_of((address - skipped).to(tl.pointer_type(tl.uint32)), 16)
    words = _four_of_each(words, pair) + _four_of_each(words, pair + 4)
    words = [tl.where(skipped & 8 != 0, words[n + 2], words[n]) for n in (0, 1, 2, 3, 4, 5)]
    words = [tl.where(skipped & 4 != 0, words[n + 1], words[n]) for n in (0, 1, 2, 3, 4)]
    odd = [(words[n] >> 16) | (words[n + 1] << 16) for n in (0, 1, 2, 3)]
    words = [tl.where(skipped & 2 != 0, odd[n], words[n]) for n in (0, 1, 2, 3)]
    pairs = tl.join(tl.join(words[0], words[2]), tl.join(words[1], words[3]))
    halves = tl.join(pairs, pairs >> 16).to(tl.uint16)
    logits = tl.reshape(halves, [pair.shape[0], 2 * pair.shape[1]])
    return logits.to(base.dtype.element_ty, bitcast=True)


@triton.jit
def _four_of_each(words, place):
    """Load words by place: the first, second, third and fourth of every four."""
    loaded = tl.load(words + place, eviction_policy="evict_first")
    even, odd = tl.split(tl.reshape(loaded, [place.shape[0], place.shape[1] // 4, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth
