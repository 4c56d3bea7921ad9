"""Filters: the few logits that can be a row's threshold, and which of them is.

This module refuses lists that are cut short: whoever finds more than fit must search the row.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .listed_rows import load_blocks, next_blocks
from .mass_units import as_key, from_key
from .race import NEVER
from .workspace import MAX_CANDIDATES

CAPACITY = tl.constexpr(MAX_CANDIDATES)
FEW = tl.constexpr(MAX_CANDIDATES // BLOCK_SIZE)
"""So many blocks are looked at without making a list: they hold no more logits."""


@triton.jit
def collect(
    target,
    draft,
    adjust,
    requests,
    at,
    places,
    num_listed,
    num_blocks,
    candidates,
    bound,
    TILE: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
):
    """Write the finite logits that reach a bound, in order: how many were found.

    Above CAPACITY the number is only known to be above it.
    """
    num_found = num_listed * 0
    for first in range(0, num_listed, TILE):
        if num_found <= CAPACITY:
            block = next_blocks(places, first, num_blocks, TILE)
            logits = load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS)
            found = (logits >= bound) & (logits > NEVER)
            flags = found.to(tl.int32)
            per_block = tl.sum(flags, 1)
            before = num_found + tl.cumsum(per_block, 0) - per_block
            place = before[:, None] + tl.cumsum(flags, 1) - 1
            tl.store(candidates + place, logits, mask=found & (place < CAPACITY))
            num_found += tl.sum(per_block, 0)
    tl.debug_barrier()
    return num_found


@triton.jit
def largest_with(logits, weights, needed, row_max, KEY_SHIFT: tl.constexpr):
    """The largest logit that, with all above it, weighs so much; if none does, the smallest.

    Args:
        logits, weights: [N], -inf and 0 where there is none; weights are integers.
        needed: scalar float64.
        row_max: the largest of the logits.
        KEY_SHIFT: how many low bits of a key tell no two of them apart.
    """
    lowest = tl.min(tl.where(logits > NEVER, logits, row_max), 0)
    low = as_key(lowest) >> KEY_SHIFT
    high = (as_key(row_max) >> KEY_SHIFT) + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        reached = logits >= from_key(middle << KEY_SHIFT)
        enough = tl.sum(tl.where(reached, weights, 0), 0).to(tl.float64) >= needed
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    reached = (logits >= from_key(low << KEY_SHIFT)) & (logits > NEVER)
    return tl.min(tl.where(reached, logits, row_max), 0)
