"""Filters: the threshold of a row whose candidates are too many to list, searched key by key.

Every pass over the row tries several keys and leaves a fraction of those between. This module
refuses to be used where a list does.
"""

import triton
import triton.language as tl

from .listed_rows import load_blocks, next_blocks
from .mass_units import as_key, from_key, mass_of
from .race import NEVER

TRIES = tl.constexpr(8)
TILE = tl.constexpr(1)
LOWEST_FINITE = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def amounts_from(
    target,
    draft,
    adjust,
    requests,
    at,
    places,
    num_listed,
    num_blocks,
    values,
    row_max,
    inverse,
    BY_RANK: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
):
    """How many logits reach each of some values, or how much mass they have: int64."""
    amounts = tl.zeros([values.shape[0]], tl.int64)
    for first in range(0, num_listed, TILE):
        block = next_blocks(places, first, num_blocks, TILE)
        logits = load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS)
        if BY_RANK:
            weights = (logits > NEVER).to(tl.int32)
        else:
            weights = mass_of(logits, row_max, inverse)
        reached = logits[None, :, :] >= values[:, None, None]
        reached = tl.where(reached, weights[None, :, :], 0)
        amounts += tl.sum(tl.sum(reached, 2), 1).to(tl.int64)
    return amounts


@triton.jit
def searched(
    target,
    draft,
    adjust,
    requests,
    at,
    places,
    num_listed,
    num_blocks,
    bound,
    row_max,
    inverse,
    needed,
    BY_RANK: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """The largest logit that, with all above it, is so many or has so much mass; else the bound.

    Only the upper bits of a key are searched where logits of 16 bits have no others.
    """
    low = as_key(bound) >> KEY_SHIFT
    high = (as_key(row_max) >> KEY_SHIFT) + 1
    while high - low > 1:
        step = tl.maximum((high - low) // (TRIES + 1), 1)
        keys = tl.minimum(low + step * (tl.arange(0, TRIES) + 1), high)
        amounts = amounts_from(
            target,
            draft,
            adjust,
            requests,
            at,
            places,
            num_listed,
            num_blocks,
            from_key(keys << KEY_SHIFT),
            row_max,
            inverse,
            BY_RANK,
            NUM_DRAFTS,
        )
        enough = (amounts.to(tl.float64) >= needed) & (keys < high)
        above = tl.min(tl.where(enough, high, keys), 0)
        low = tl.max(tl.where(enough, keys, low), 0)
        high = above
    return tl.maximum(from_key(low << KEY_SHIFT), bound)
