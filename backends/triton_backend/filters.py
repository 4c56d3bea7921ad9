"""Stage 2, when some request filters: min-p, top-k and top-p as one threshold per row.

The largest logits of blocks mostly settle it, so that no logit is read again. Rows that they leave
open are put on a list: see `open_rows`. This module refuses to read a logit.
"""

import triton
import triton.language as tl

from .filter_search import LOWEST_FINITE
from .histogram import COPIES
from .kept_statistics import keep, load_quarters
from .listed_rows import listed, next_blocks
from .mass_units import UNITS, as_short_key, in_units
from .overlap import let_next_stage_start, wait_for_stage_before
from .peaks import beside_largest, largest_with_enough, least_mass, may_hold_two, peak_of_rank
from .race import NEVER
from .recipe import first_row, temperature_of
from .workspace import MAX_CANDIDATES, MAX_COPIED_ROWS

CAPACITY = tl.constexpr(MAX_CANDIDATES)
MOST_COPIED = tl.constexpr(MAX_COPIED_ROWS)
FEW = tl.constexpr(4)
"""So many blocks of a row are read where their largest logits do not settle it."""

HEAVY = tl.constexpr(0.125)
"""Blocks with more beside their largest logit than so much of what top-p cuts may be read first."""

UNDECIDED = tl.constexpr(0x7FC00000)
"""A NaN's bits, in place of a threshold."""


@triton.jit
def filter_of(values, request, neutral):
    """A request's filter, neutral where nobody uses it."""
    if values is None:
        value = request * 0 + neutral
    else:
        value = tl.load(values + request)
    return value


@triton.jit
def recipe_of(recipe, request):
    """1 / temperature, whether the request is greedy, min_p, top_k and top_p."""
    inverse, greedy = temperature_of(recipe, request)
    min_p = filter_of(recipe.min_p, request, 0.0)
    top_k = filter_of(recipe.top_k, request, 0)
    top_p = filter_of(recipe.top_p, request, 1.0)
    return inverse, greedy, min_p, top_k, top_p


@triton.jit
def row_recipe(target, draft, target_recipe, draft_recipe, request, row, NUM_DRAFTS: tl.constexpr):
    """A target's or draft's row: `recipe_of` it, its vocabulary size, its place among its kind."""
    if row <= NUM_DRAFTS:
        inverse, greedy, min_p, top_k, top_p = recipe_of(target_recipe, request)
        vocab_size = row * 0 + target.vocab_size
        place = row
    else:
        inverse, greedy, min_p, top_k, top_p = recipe_of(draft_recipe, request)
        vocab_size = row * 0 + draft.vocab_size
        place = row - NUM_DRAFTS
    return inverse, greedy, min_p, top_k, top_p, vocab_size, place


@triton.jit
def least_logit_of(min_p, row_max, inverse):
    """The least logit that min-p keeps; -inf where it does not cut."""
    # A token at the maximum is never cut off, whatever the rounding.
    return tl.minimum(row_max + tl.log(min_p) / inverse, row_max)


@triton.jit
def first_guess(largest, masses, row_max, recipe, by_rank, KEY_SHIFT: tl.constexpr):
    """What the largest logits of blocks say about the smallest logit that a row keeps.

    Args:
        largest, masses: [WIDTH], per block the largest logit and the mass relative to it.
        row_max: scalar.
        recipe: (1 / temperature, min_p, top_k, top_p).
        by_rank: whether top_k cuts.

    Returns:
        What that logit is not below if min-p and top-k cut; the guess; whether that is not below it
        either; whether it is right if no block holds two logits that reach it; what
        `largest_with_enough` needs, twice; and the mass of blocks that reach the first, in units.
    """
    inverse, min_p, top_k, top_p = recipe
    keys = as_short_key(largest, KEY_SHIFT)
    least_logit = least_logit_of(min_p, row_max, inverse)
    peak = row_max * 0.0 + NEVER
    sound = top_k >= 0
    if by_rank:
        peak = peak_of_rank(largest, keys, top_k, KEY_SHIFT)
        sound = peak > NEVER
    floor = tl.maximum(least_logit, peak)
    guess = floor
    right = sound
    fewest = top_k.to(tl.float64)
    enough = fewest
    most = row_max.to(tl.int64) * 0
    if top_p < 1.0:
        weight = tl.exp((largest - row_max) * inverse)
        own = in_units(weight)
        units = in_units(masses * weight)
        most = tl.sum(tl.where(largest >= floor, units, 0), 0)
        least = most
        if by_rank | (min_p > 0.0):
            least = least_mass(largest, own, peak, top_k, least_logit, row_max, inverse)
        fewest = top_p.to(tl.float64) * least.to(tl.float64)
        enough = top_p.to(tl.float64) * most.to(tl.float64)
        sound = tl.sum(own, 0).to(tl.float64) >= enough
        if sound:
            guess, sound, right = largest_with_enough(
                keys, None, fewest, enough, True, row_max, inverse, KEY_SHIFT
            )
            sound = sound & (guess >= floor)
            right = right & sound
    return floor, guess, sound, right, fewest, enough, most


@triton.jit
def counts_of(scratch, number, slot):
    """Where the logits of a row on the list are counted, and in how many copies."""
    copies = tl.where(number < MOST_COPIED, COPIES, 1)
    if number < MOST_COPIED:
        counts = scratch.counts + number * COPIES * CAPACITY
    else:
        counts = scratch.candidates + slot.to(tl.int64) * CAPACITY
    return counts, copies


@triton.jit
def put_on_list(scratch, slot, floor, row_max, recipe, by_rank, most, vocab_size):
    """Leave a row to `open_rows`, with its counts at zero."""
    inverse, _min_p, _top_k, top_p = recipe
    number = tl.atomic_add(scratch.listing, 1, sem="relaxed")
    # Below this logit, all tokens together have no more mass than top-p may cut.
    cut = 0.999 * (1.0 - top_p) * (most.to(tl.float32) / UNITS)
    start = tl.minimum(row_max + tl.log(cut / vocab_size.to(tl.float32)) / inverse, row_max)
    only_by_mass = (top_p < 1.0) & (floor == NEVER) & (by_rank == 0)
    bound = tl.maximum(tl.where(only_by_mass, start, floor), LOWEST_FINITE)
    record = scratch.open_rows + number * 4
    tl.store(record, slot)
    tl.store(record + 1, bound.to(tl.int32, bitcast=True))
    tl.store(record.to(tl.pointer_type(tl.int64), bitcast=True) + 1, most)
    counts, copies = counts_of(scratch, number, slot)
    for copy in range(copies):
        tl.store(counts + copy * CAPACITY + tl.arange(0, CAPACITY), 0.0)


@triton.jit
def filter_row(
    target,
    draft,
    adjust,
    requests,
    at,
    scratch,
    slot,
    recipe,
    vocab_size,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """A row's threshold, -inf if nothing is cut; its statistics become those of what reaches it.

    Or the row is put on the list.
    """
    inverse, min_p, top_k, top_p = recipe
    summary = scratch.summaries + slot.to(tl.int64) * 2
    out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
    block = tl.arange(0, WIDTH)
    inside = block < scratch.num_blocks
    row_max = tl.load(summary)
    log_total = tl.load(summary + 1)
    largest = tl.load(out + block, mask=inside, other=NEVER)
    masses = tl.load(out + scratch.num_blocks + block, mask=inside, other=0.0)
    usable = (log_total > NEVER) & (log_total < float("inf"))
    by_rank = (top_k > 0) & (top_k < vocab_size)
    threshold = row_max * 0.0 + NEVER
    if usable & ((min_p > 0.0) | by_rank | (top_p < 1.0)):
        floor, threshold, sound, right, fewest, enough, most = first_guess(
            largest, masses, row_max, recipe, by_rank, KEY_SHIFT
        )
        unclear = may_hold_two(largest, masses, threshold, row_max, inverse)
        if not sound:
            cut = (1.0 - top_p) * (most.to(tl.float32) / UNITS)
            unclear = beside_largest(largest, masses, row_max, inverse) > cut * HEAVY
        num_unclear = tl.sum(unclear.to(tl.int32), 0)
        settled = sound & right & (num_unclear == 0)
        read = row_max.to(tl.int64) * 0
        if (num_unclear > 0) & (num_unclear <= FEW):
            places, _ = listed(unclear)
            few = next_blocks(places, 0, scratch.num_blocks, FEW)
            quarters = load_quarters(target, draft, adjust, requests, at, few, NUM_DRAFTS)
            settled = True
            if by_rank | (top_p < 1.0):
                keys = as_short_key(tl.where(unclear, NEVER, largest), KEY_SHIFT)
                first, second, third, fourth = quarters
                more_keys = (
                    as_short_key(first, KEY_SHIFT),
                    as_short_key(second, KEY_SHIFT),
                    as_short_key(third, KEY_SHIFT),
                    as_short_key(fourth, KEY_SHIFT),
                )
                logit, _reached, settled = largest_with_enough(
                    keys, more_keys, fewest, enough, top_p < 1.0, row_max, inverse, KEY_SHIFT
                )
                threshold = tl.maximum(logit, floor)
            still_unclear = may_hold_two(largest, masses, threshold, row_max, inverse)
            still_unclear = still_unclear & (unclear == 0)
            settled = settled & (tl.sum(still_unclear.to(tl.int32), 0) == 0)
            if settled:
                few_largest, few_masses = keep(
                    quarters, out, few, scratch.num_blocks, threshold, inverse
                )
                weights = few_masses * tl.exp((few_largest - row_max) * inverse)
                read = tl.sum(in_units(weights), 0)
        if settled:
            kept = (largest >= threshold) & inside
            others = inside & (unclear == 0)
            tl.store(out + block, tl.where(kept, largest, NEVER), mask=others)
            tl.store(out + scratch.num_blocks + block, tl.where(kept, 1.0, 0.0), mask=others)
            weights = tl.where(kept & others, tl.exp((largest - row_max) * inverse), 0.0)
            total = read + tl.sum(in_units(weights), 0)
            tl.store(summary + 1, tl.log(total.to(tl.float32) / UNITS))
        else:
            put_on_list(scratch, slot, floor, row_max, recipe, by_rank, most, vocab_size)
            threshold = (slot * 0 + UNDECIDED).to(tl.float32, bitcast=True)
    return threshold


@triton.jit
def filter_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """One program per row, as in `statistics_kernel`."""
    let_next_stage_start(OVERLAPS)
    slot = tl.program_id(0)
    request = slot // ROWS
    row = slot % ROWS
    start, num_rows = first_row(target, request)
    inverse, greedy, min_p, top_k, top_p, vocab_size, place = row_recipe(
        target, draft, target_recipe, draft_recipe, request, row, NUM_DRAFTS
    )
    wait_for_stage_before(OVERLAPS)
    threshold = inverse * 0.0 + NEVER
    if (place < num_rows) & (greedy == 0):
        threshold = filter_row(
            target,
            draft,
            adjust,
            requests,
            (request, start, row),
            scratch,
            slot,
            (inverse, min_p, top_k, top_p),
            vocab_size,
            NUM_DRAFTS,
            WIDTH,
            KEY_SHIFT,
        )
    tl.store(scratch.thresholds + slot, threshold)
