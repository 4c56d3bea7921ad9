"""Stage 2: the block statistics of a row without what its filters cut off.

This module refuses to decide what that is.
"""

import triton
import triton.language as tl

from .listed_rows import load_row
from .quarters import QUARTER, quarter_token_ids
from .race import NEVER
from .statistics import block_statistics


@triton.jit
def keep(quarters, out, block, num_blocks, threshold, inverse):
    """Make the statistics of blocks those of what reaches a threshold, and return them.

    Args:
        quarters: the logits of blocks, see `quarters`.
        out: the row's block statistics.
        block: [blocks].
        num_blocks, threshold, inverse: scalars.
    """
    first, second, third, fourth = quarters
    kept = (
        tl.where(first >= threshold, first, NEVER),
        tl.where(second >= threshold, second, NEVER),
        tl.where(third >= threshold, third, NEVER),
        tl.where(fourth >= threshold, fourth, NEVER),
    )
    largest, mass = block_statistics(kept, inverse)
    tl.store(out + block, largest, mask=block < num_blocks)
    tl.store(out + num_blocks + block, mass, mask=block < num_blocks)
    return largest, mass


@triton.jit
def load_quarters(target, draft, adjust, requests, at, block, NUM_DRAFTS: tl.constexpr):
    """Logits of blocks of a row, see `quarters` and `load_row`."""
    ids = quarter_token_ids(block)
    return (
        load_row(target, draft, adjust, requests, at, ids, NUM_DRAFTS),
        load_row(target, draft, adjust, requests, at, ids + QUARTER, NUM_DRAFTS),
        load_row(target, draft, adjust, requests, at, ids + 2 * QUARTER, NUM_DRAFTS),
        load_row(target, draft, adjust, requests, at, ids + 3 * QUARTER, NUM_DRAFTS),
    )
