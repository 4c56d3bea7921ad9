"""Stage 2: the block statistics of a row without what its filters cut off.

This module refuses to decide what that is.
"""

import triton
import triton.language as tl

from .candidates import FEW
from .listed_rows import listed, load_row, next_blocks
from .mass_units import UNITS, in_units
from .quarters import QUARTER, quarter_token_ids
from .race import NEVER
from .statistics import block_statistics


@triton.jit
def keep_listed(
    target,
    draft,
    adjust,
    requests,
    at,
    out,
    places,
    num_listed,
    num_blocks,
    threshold,
    row_max,
    inverse,
    TILE: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
):
    """Write the statistics of listed blocks as if they had no more than what reaches a threshold.

    Returns:
        Their mass relative to the row's largest logit, in units.
    """
    total = tl.zeros([TILE], tl.int64)
    for place in range(0, num_listed, TILE):
        block = next_blocks(places, place, num_blocks, TILE)
        token_id = quarter_token_ids(block)
        first = load_row(target, draft, adjust, requests, at, token_id, NUM_DRAFTS)
        second = load_row(target, draft, adjust, requests, at, token_id + QUARTER, NUM_DRAFTS)
        third = load_row(target, draft, adjust, requests, at, token_id + 2 * QUARTER, NUM_DRAFTS)
        fourth = load_row(target, draft, adjust, requests, at, token_id + 3 * QUARTER, NUM_DRAFTS)
        kept = (
            tl.where(first >= threshold, first, NEVER),
            tl.where(second >= threshold, second, NEVER),
            tl.where(third >= threshold, third, NEVER),
            tl.where(fourth >= threshold, fourth, NEVER),
        )
        largest, mass = block_statistics(kept, inverse)
        tl.store(out + block, largest, mask=block < num_blocks)
        tl.store(out + num_blocks + block, mass, mask=block < num_blocks)
        total += in_units(mass * tl.exp((largest - row_max) * inverse))
    return tl.sum(total, 0)


@triton.jit
def keep_from(
    target,
    draft,
    adjust,
    requests,
    at,
    out,
    largest,
    num_blocks,
    threshold,
    row_max,
    inverse,
    MANY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
):
    """Make a row's block statistics those of what reaches a threshold: the log of its total."""
    block = tl.arange(0, largest.shape[0])
    kept = (largest >= threshold) & (largest > NEVER)
    places, num_listed = listed(kept)
    gone = (kept == 0) & (block < num_blocks)
    tl.store(out + block, NEVER, mask=gone)
    tl.store(out + num_blocks + block, 0.0, mask=gone)
    if num_listed <= FEW:
        total = keep_listed(
            target,
            draft,
            adjust,
            requests,
            at,
            out,
            places,
            num_listed,
            num_blocks,
            threshold,
            row_max,
            inverse,
            FEW,
            NUM_DRAFTS,
        )
    else:
        total = keep_listed(
            target,
            draft,
            adjust,
            requests,
            at,
            out,
            places,
            num_listed,
            num_blocks,
            threshold,
            row_max,
            inverse,
            MANY,
            NUM_DRAFTS,
        )
    return tl.log(total.to(tl.float32) / UNITS)
