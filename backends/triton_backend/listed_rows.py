"""Stage 2: reading, of one row, only the blocks that matter.

This module refuses to decide which they are.
"""

import triton
import triton.language as tl

from .race import BLOCK, NEVER
from .recipe import load_draft, load_target, request_slot


@triton.jit
def load_row(target, draft, adjust, requests, at, token_id, NUM_DRAFTS: tl.constexpr):
    """Logits of a row, the target's or behind those the draft's; -inf where there is no token.

    Args:
        target, draft, adjust, requests: see `arguments`.
        at: (request, the first of its rows, row).
        token_id: any shape.
        NUM_DRAFTS: the target's rows are NUM_DRAFTS + 1.
    """
    request, start, row = at
    if row <= NUM_DRAFTS:
        logits = load_target(target, adjust, requests, request, start, row, token_id, NUM_DRAFTS)
    else:
        logits = tl.full(token_id.shape, NEVER, tl.float32)
        if draft.logits is not None:
            slot = request_slot(requests, request)
            logits = load_draft(draft, slot, row - NUM_DRAFTS - 1, token_id)
    return logits


@triton.jit
def listed(flags):
    """What `next_blocks` goes by: each flagged block's place in the list, -1 for all others."""
    ones = flags.to(tl.int32)
    return tl.where(flags, tl.cumsum(ones, 0) - 1, -1), tl.sum(ones, 0)


@triton.jit
def next_blocks(places, first, num_blocks, TILE: tl.constexpr):
    """The listed blocks number first, first + 1, ...: [TILE]; `num_blocks` behind the end."""
    wanted = first + tl.arange(0, TILE)
    block = tl.arange(0, places.shape[0])
    found = places[None, :] == wanted[:, None]
    return tl.min(tl.where(found, block[None, :], num_blocks), 1)


@triton.jit
def load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS: tl.constexpr):
    """Logits of blocks: [TILE] -> [TILE, BLOCK]."""
    token_id = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    return load_row(target, draft, adjust, requests, at, token_id, NUM_DRAFTS)
