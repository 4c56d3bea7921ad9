"""Stage 3 of relaxed acceptance: the threshold of one row, found by one program.

Block statistics prove which blocks can matter, so only those are read again; of their logits, the
few that can be the threshold are ranked. This module refuses to sort a row.
"""

import triton
import triton.language as tl

from .candidates import CAPACITY, FEW, collect, selected_threshold
from .filter_bounds import mass_bound, rank_bound
from .filter_search import searched_threshold
from .listed_rows import listed, load_blocks, next_blocks
from .mass_units import UNITS, in_units
from .race import NEVER


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
