"""Relaxed acceptance: the n-th largest logit of one row, found by one program.

Only blocks that can hold it are read again. This module refuses to weigh tokens.
"""

import triton
import triton.language as tl

from .candidates import CAPACITY, FEW, collect, largest_with
from .filter_search import LOWEST_FINITE, searched
from .listed_rows import listed, load_blocks, next_blocks
from .mass_units import as_short_key
from .peaks import peak_of_rank
from .race import NEVER


@triton.jit
def ranked_threshold(
    target,
    draft,
    adjust,
    requests,
    at,
    largest,
    candidates,
    num_blocks,
    row_max,
    least_logit,
    rank,
    MANY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """The larger of a logit and the row's rank-th largest one.

    Args:
        target, draft, adjust, requests, at: the row, see `load_row`.
        largest: [WIDTH], per block the largest logit.
        candidates: room for a list of logits.
        num_blocks, row_max, least_logit, rank: scalars.
        MANY: how many blocks are read at once.
        NUM_DRAFTS, KEY_SHIFT: see `filter_kernel`.
    """
    peak = peak_of_rank(largest, as_short_key(largest, KEY_SHIFT), rank, KEY_SHIFT)
    bound = tl.maximum(least_logit, peak)
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
    threshold = bound
    if num_found > CAPACITY:
        threshold = searched(
            target,
            draft,
            adjust,
            requests,
            at,
            places,
            num_listed,
            num_blocks,
            tl.maximum(bound, LOWEST_FINITE),
            row_max,
            1.0,
            rank.to(tl.float64),
            True,
            NUM_DRAFTS,
            KEY_SHIFT,
        )
    elif num_found >= rank:
        ones = (logits > NEVER).to(tl.int32)
        threshold = largest_with(logits, ones, rank.to(tl.float64), row_max, KEY_SHIFT)
    return tl.maximum(threshold, bound)
