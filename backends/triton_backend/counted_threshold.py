"""Stage 2: a row's threshold from counts of its logits, see `histogram`.

It follows from counts of keys. Of bins, the one that holds it is found, and that bin's logits are
ranked. This module refuses to count.
"""

import triton
import triton.language as tl

from .candidates import CAPACITY, largest_with
from .filter_search import amounts_from, searched
from .histogram import BINS, bin_of, bin_scale, keys_are_few, last_enough, row_maxima, summed
from .listed_rows import listed, load_blocks, next_blocks
from .mass_units import as_short_key, from_short_key, mass_of
from .race import NEVER

RANKED_TILE = tl.constexpr(4)


@triton.jit
def threshold_of_keys(
    counts, copies, bound, row_max, inverse, total, filters, KEY_SHIFT: tl.constexpr
):
    """`counted_threshold` where every key has its own count."""
    by_min_p, top_k, by_rank, top_p, by_mass = filters
    place = tl.arange(0, CAPACITY)
    number = summed(counts.to(tl.pointer_type(tl.int32), bitcast=True) + place, copies, CAPACITY)
    low = as_short_key(bound, KEY_SHIFT).to(tl.int64)
    logits = from_short_key(low + place, KEY_SHIFT)
    found = top_k * 0
    if by_rank:
        found = last_enough(number, top_k.to(tl.float64))
    some = (number > 0) & (place >= found)
    masses = number.to(tl.int64) * mass_of(tl.where(some, logits, NEVER), row_max, inverse)
    mass = tl.sum(masses, 0)
    if by_mass:
        whole = tl.where(by_rank | by_min_p, mass, total)
        found = tl.maximum(found, last_enough(masses, top_p.to(tl.float64) * whole.to(tl.float64)))
        mass = tl.sum(tl.where(place >= found, masses, 0), 0)
    return tl.maximum(from_short_key(low + found, KEY_SHIFT), bound), mass


@triton.jit
def largest_in_bin(
    target,
    draft,
    adjust,
    requests,
    at,
    candidates,
    largest,
    chosen,
    origin,
    scale,
    bound,
    row_max,
    inverse,
    num_blocks,
    needed,
    above,
    mass_above,
    BY_RANK: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """The largest logit of a bin that, with all above it, is so many or has so much mass.

    Args:
        candidates: room for CAPACITY logits.
        largest: [WIDTH], per block the largest logit.
        chosen: scalar, the bin.
        needed: scalar float64.
        above, mass_above: scalars, what larger bins have of it, and their mass in units.
        BY_RANK: whether logits are counted or weighed.

    Returns:
        The logit, and the mass of all that reaches it.
    """
    num_found = chosen * 0
    places, num_listed = listed((largest >= bound) & (largest > NEVER))
    tl.debug_barrier()
    for first in range(0, num_listed, RANKED_TILE):
        block = next_blocks(places, first, num_blocks, RANKED_TILE)
        logits = load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS)
        reached = (logits >= bound) & (logits > NEVER)
        flags = (reached & (bin_of(logits, origin, scale) == chosen)).to(tl.int32)
        per_block = tl.sum(flags, 1)
        before = num_found + tl.cumsum(per_block, 0) - per_block
        place = before[:, None] + tl.cumsum(flags, 1) - 1
        tl.store(candidates + place, logits, mask=(flags > 0) & (place < CAPACITY))
        num_found += tl.sum(per_block, 0)
    tl.debug_barrier()
    if num_found <= CAPACITY:
        place = tl.arange(0, CAPACITY)
        logits = tl.load(candidates + place, mask=place < num_found, other=NEVER)
        units = mass_of(logits, row_max, inverse)
        if BY_RANK:
            weights = (logits > NEVER).to(tl.int64)
        else:
            weights = units
        highest = tl.max(logits, 0)
        logit = largest_with(logits, weights, needed - above.to(tl.float64), highest, KEY_SHIFT)
        mass = mass_above + tl.sum(tl.where(logits >= logit, units, 0), 0)
    else:
        logit = searched(
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
            BY_RANK,
            NUM_DRAFTS,
            KEY_SHIFT,
        )
        only = logit + tl.zeros([1], tl.float32)
        reached = amounts_from(
            target,
            draft,
            adjust,
            requests,
            at,
            places,
            num_listed,
            num_blocks,
            only,
            row_max,
            inverse,
            False,
            NUM_DRAFTS,
        )
        mass = tl.sum(reached, 0)
    return logit, mass


@triton.jit
def threshold_of_bins(
    target,
    draft,
    adjust,
    requests,
    at,
    counts,
    copies,
    candidates,
    largest,
    num_blocks,
    bound,
    row_max,
    inverse,
    total,
    filters,
    NUM_DRAFTS: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """`counted_threshold` where bins hold several keys."""
    by_min_p, top_k, by_rank, top_p, by_mass = filters
    bins = tl.arange(0, BINS)
    weighed = counts.to(tl.pointer_type(tl.int64), bitcast=True)
    counted = counts.to(tl.pointer_type(tl.int32), bitcast=True)
    masses = summed(weighed + bins, copies, CAPACITY // 2)
    numbers = summed(counted + 2 * BINS + bins, copies, CAPACITY)
    origin, scale = bin_scale(largest, bound, row_max)
    threshold = bound
    mass = tl.sum(masses, 0)
    if by_rank:
        needed = top_k.to(tl.float64)
        if tl.sum(numbers, 0).to(tl.float64) >= needed:
            chosen = last_enough(numbers, needed)
            threshold, mass = largest_in_bin(
                target,
                draft,
                adjust,
                requests,
                at,
                candidates,
                largest,
                chosen,
                origin,
                scale,
                bound,
                row_max,
                inverse,
                num_blocks,
                needed,
                tl.sum(tl.where(bins > chosen, numbers, 0), 0),
                tl.sum(tl.where(bins > chosen, masses, 0), 0),
                True,
                NUM_DRAFTS,
                KEY_SHIFT,
            )
    if by_mass:
        whole = tl.where(by_rank | by_min_p, mass, total)
        needed = top_p.to(tl.float64) * whole.to(tl.float64)
        if tl.sum(masses, 0).to(tl.float64) >= needed:
            chosen = last_enough(masses, needed)
            above = tl.sum(tl.where(bins > chosen, masses, 0), 0)
            threshold, mass = largest_in_bin(
                target,
                draft,
                adjust,
                requests,
                at,
                candidates,
                largest,
                chosen,
                origin,
                scale,
                bound,
                row_max,
                inverse,
                num_blocks,
                needed,
                above,
                above,
                False,
                NUM_DRAFTS,
                KEY_SHIFT,
            )
    return threshold, mass


@triton.jit
def counted_threshold(
    target,
    draft,
    adjust,
    requests,
    at,
    out,
    counts,
    copies,
    candidates,
    num_blocks,
    bound,
    row_max,
    inverse,
    total,
    filters,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """The smallest logit that a row's filters keep, and the mass kept, in units.

    Args:
        target, draft, adjust, requests, at: the row, see `load_row`.
        out: its block statistics.
        counts: [copies, CAPACITY] words, see `count_logits`; all logits are counted.
        candidates: room for CAPACITY logits.
        num_blocks, bound, row_max, inverse: scalars.
        total: scalar, the mass of the row in units.
        filters: (whether min-p cuts, top_k, whether it cuts, top_p, whether it cuts).
        NUM_DRAFTS, WIDTH, KEY_SHIFT: see `filter_kernel`.
    """
    if keys_are_few(bound, row_max, KEY_SHIFT):
        threshold, mass = threshold_of_keys(
            counts, copies, bound, row_max, inverse, total, filters, KEY_SHIFT
        )
    else:
        threshold, mass = threshold_of_bins(
            target,
            draft,
            adjust,
            requests,
            at,
            counts,
            copies,
            candidates,
            row_maxima(out, num_blocks, WIDTH),
            num_blocks,
            bound,
            row_max,
            inverse,
            total,
            filters,
            NUM_DRAFTS,
            KEY_SHIFT,
        )
    return threshold, mass
