"""Stage 2, when some request filters: min-p, top-k and top-p as one threshold per row.

Block statistics prove which blocks can matter, so only those are read again; of their logits, the
few that can be the threshold are ranked. This module refuses to sort a row.
"""

import triton
import triton.language as tl

from .candidates import CAPACITY, FEW, collect, selected_threshold
from .filter_bounds import mass_bound, rank_bound
from .filter_search import searched_threshold
from .kept_statistics import keep_from
from .listed_rows import listed, load_blocks, next_blocks
from .mass_units import UNITS, in_units
from .overlap import let_next_stage_start, wait_for_stage_before
from .race import NEVER
from .recipe import first_row, temperature_of


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
def row_threshold(
    target,
    draft,
    adjust,
    requests,
    at,
    largest,
    masses,
    candidates,
    num_blocks,
    row_max,
    inverse,
    filters,
    vocab_size,
    MANY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """The smallest logit that a row's filters keep.

    Args:
        target, draft, adjust, requests, at: the row, see `load_row`.
        largest, masses: [WIDTH], per block the largest logit and all mass, relative to the row's
            largest logit.
        candidates: room for a list of logits.
        num_blocks, row_max, inverse, filters, vocab_size: scalars, see `ranked_threshold`.
        MANY, NUM_DRAFTS, KEY_SHIFT: see `filter_kernel`.
    """
    least_logit, by_min_p, top_k, by_rank, top_p, by_mass = filters
    total = tl.sum(in_units(masses), 0)
    bound = least_logit
    if by_mass:
        # A little less than may be cut, because float32 sums are not exact.
        cut = 0.999 * (1.0 - top_p) * (total.to(tl.float32) / UNITS)
        bound = tl.maximum(bound, mass_bound(largest, masses, row_max, inverse, cut, vocab_size))
    if by_rank:
        if tl.sum(((largest >= bound) & (largest > NEVER)).to(tl.int32), 0) >= top_k:
            bound = tl.maximum(bound, rank_bound(largest, row_max, inverse, top_k))
    threshold = bound
    if by_rank | by_mass:
        proven = False
        tries_left = 2
        while tries_left > 0:
            places, num_listed = listed((largest >= bound) & (largest > NEVER))
            if num_listed <= FEW:
                block = next_blocks(places, 0, num_blocks, FEW)
                logits = load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS)
                logits = tl.reshape(logits, [CAPACITY], can_reorder=True)
                logits = tl.where(logits >= bound, logits, NEVER)
                num_found = tl.sum((logits > NEVER).to(tl.int32), 0)
            else:
                num_found = collect(
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
                    MANY,
                    NUM_DRAFTS,
                )
                place = tl.arange(0, CAPACITY)
                logits = tl.load(candidates + place, mask=place < num_found, other=NEVER)
            if num_found <= CAPACITY:
                threshold, proven = selected_threshold(
                    logits,
                    num_found,
                    bound,
                    largest,
                    masses,
                    row_max,
                    total,
                    inverse,
                    filters,
                    KEY_SHIFT,
                )
            else:
                tries_left = 0
            tries_left -= 1
            if proven:
                tries_left = 0
            elif by_rank | by_min_p:
                # The mass that top-p refers to is not known: a longer list tells it.
                bound = least_logit
                if by_rank:
                    bound = tl.maximum(bound, rank_bound(largest, row_max, inverse, top_k))
            else:
                tries_left = 0
        if proven == 0:
            places, num_listed = listed((largest >= bound) & (largest > NEVER))
            threshold = searched_threshold(
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
                total,
                inverse,
                filters,
                NUM_DRAFTS,
                KEY_SHIFT,
            )
    return threshold


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
    MANY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """A row's threshold, -inf if nothing is cut; its statistics become those of what reaches it."""
    inverse, min_p, top_k, top_p = recipe
    summary = scratch.summaries + slot.to(tl.int64) * 2
    row_max = tl.load(summary)
    log_total = tl.load(summary + 1)
    usable = (log_total > NEVER) & (log_total < float("inf"))
    by_rank = (top_k > 0) & (top_k < vocab_size)
    threshold = NEVER
    if usable & ((min_p > 0.0) | by_rank | (top_p < 1.0)):
        # A token at the maximum is never cut off, whatever the rounding.
        least_logit = tl.minimum(row_max + tl.log(min_p) / inverse, row_max)
        filters = (least_logit, min_p > 0.0, top_k, by_rank, top_p, top_p < 1.0)
        out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
        block = tl.arange(0, WIDTH)
        inside = block < scratch.num_blocks
        largest = tl.load(out + block, mask=inside, other=NEVER)
        masses = tl.load(out + scratch.num_blocks + block, mask=inside, other=0.0)
        threshold = row_threshold(
            target,
            draft,
            adjust,
            requests,
            at,
            largest,
            masses * tl.exp((largest - row_max) * inverse),
            scratch.candidates + slot.to(tl.int64) * CAPACITY,
            scratch.num_blocks,
            row_max,
            inverse,
            filters,
            vocab_size.to(tl.float32),
            MANY,
            NUM_DRAFTS,
            KEY_SHIFT,
        )
        kept_total = keep_from(
            target,
            draft,
            adjust,
            requests,
            at,
            out,
            largest,
            scratch.num_blocks,
            threshold,
            row_max,
            inverse,
            MANY,
            NUM_DRAFTS,
        )
        tl.store(summary + 1, kept_total)
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
    MANY: tl.constexpr = 4,
):
    """One program per row, as in `statistics_kernel`; MANY blocks are read at once."""
    let_next_stage_start(OVERLAPS)
    slot = tl.program_id(0)
    request = slot // ROWS
    row = slot % ROWS
    start, num_rows = first_row(target, request)
    vocab_size = row * 0 + target.vocab_size
    if row <= NUM_DRAFTS:
        inverse, greedy, min_p, top_k, top_p = recipe_of(target_recipe, request)
        place = row
    else:
        inverse, greedy, min_p, top_k, top_p = recipe_of(draft_recipe, request)
        place = row - NUM_DRAFTS
        vocab_size = row * 0 + draft.vocab_size
    wait_for_stage_before(OVERLAPS)
    threshold = NEVER
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
            MANY,
            NUM_DRAFTS,
            WIDTH,
            KEY_SHIFT,
        )
    tl.store(scratch.thresholds + slot, threshold)
