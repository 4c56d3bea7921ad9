"""Stage 2: the few logits that can be a row's threshold, and which of them is.

This module refuses lists that are cut short: whoever finds more than fit must search the row.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .filter_bounds import next_mass_limits
from .listed_rows import load_blocks, next_blocks
from .mass_units import as_key, from_key, in_units, mass_of
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


@triton.jit
def mass_threshold(logits, masses, share, less, more, row_max, KEY_SHIFT: tl.constexpr):
    """Where a share of a mass is reached, and whether it is the same for all masses in between."""
    threshold = largest_with(logits, masses, share * more.to(tl.float64), row_max, KEY_SHIFT)
    above = tl.sum(tl.where(logits > threshold, masses, 0), 0)
    held = tl.sum(masses, 0)
    agree = above.to(tl.float64) < share * less.to(tl.float64)
    return threshold, agree & (held.to(tl.float64) >= share * more.to(tl.float64))


@triton.jit
def selected_threshold(
    logits,
    num_found,
    bound,
    largest,
    masses,
    row_max,
    total,
    inverse,
    filters,
    KEY_SHIFT: tl.constexpr,
):
    """The threshold, and whether these logits prove it.

    Args:
        logits: [N], all of a row that reach the bound, and -inf.
        num_found, bound: scalars, how many there are.
        largest, masses: [WIDTH], see `row_threshold`.
        row_max, total, inverse: scalars, the row's largest logit, its mass in units, and
            1 / temperature.
        filters: (least logit for min-p, whether it cuts, top_k, whether it cuts, top_p, whether it
            cuts).
        KEY_SHIFT: see `largest_with`.

    Top-p refers to the mass that min-p and top-k leave. Where their thresholds lie below the bound,
    that mass is known only within limits, which mostly agree on the threshold.
    """
    least_logit, by_min_p, top_k, by_rank, top_p, by_mass = filters
    threshold = tl.maximum(least_logit, bound)
    enough = by_rank & (num_found >= top_k)
    if enough:
        ones = (logits > NEVER).to(tl.int32)
        threshold = largest_with(logits, ones, top_k.to(tl.float64), row_max, KEY_SHIFT)
        threshold = tl.maximum(threshold, least_logit)
    proven = True
    if by_mass:
        logits = tl.where(logits >= threshold, logits, NEVER)
        units = mass_of(logits, row_max, inverse)
        held = tl.sum(units, 0)
        less = held
        more = held
        missing = (bound > least_logit) & (enough == 0)
        if missing:
            more = tl.maximum(total, held)
            less = tl.where(by_rank | by_min_p, held, more)
        share = top_p.to(tl.float64)
        threshold, proven = mass_threshold(logits, units, share, less, more, row_max, KEY_SHIFT)
        if missing & by_rank & (proven == 0):
            in_listed = tl.sum(tl.where(largest >= bound, in_units(masses), 0), 0)
            least, most = next_mass_limits(
                largest,
                masses,
                bound,
                row_max,
                inverse,
                top_k - num_found,
                tl.maximum(in_listed - held, 0),
            )
            more = tl.minimum(more, held + most)
            less = tl.where(by_min_p, held, held + least)
            threshold, proven = mass_threshold(logits, units, share, less, more, row_max, KEY_SHIFT)
    return threshold, proven
