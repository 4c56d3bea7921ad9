"""Stage 5 of policies that test p against q: the block that wins the race of max(P p - q, 0).

Such a block's mass is at most P times what p has there, which is known: blocks are read in the
order of what they might score, until no other can win. This module refuses to draw from p.
"""

import triton
import triton.language as tl

from .quarters import draft_quarters_at, target_quarters
from .recipe import request_slot
from .residual import residual_statistics

AT_ONCE = tl.constexpr(4)
"""Blocks that are read at once: the best of those with the same remainder."""
SLACK = tl.constexpr(1.0001)
"""More than rounding makes of a sum of non-negative numbers."""
NO_BLOCK = tl.constexpr(2147483647)


@triton.jit
def recovered_block(
    target,
    draft,
    requests,
    adjust,
    request,
    start,
    row,
    bounds,
    arrivals,
    target_law,
    draft_law,
    log_product,
    NUM_DRAFTS: tl.constexpr,
):
    """The block that wins: scalar int32, `NO_BLOCK` where P p is nowhere above q.

    Args:
        target, draft, requests, adjust: see `arguments`.
        request, start, row: scalars, the request, its first row of logits and which of its rows.
        bounds: [1, num_blocks], P p of each block divided by its arrival; negative for none.
        arrivals: [1, num_blocks], see `block_arrivals`.
        target_law, draft_law: see `law_at`.
        log_product: log P.
        NUM_DRAFTS: see `statistics_kernel`.
    """
    WIDTH: tl.constexpr = bounds.shape[1]
    GROUPS: tl.constexpr = min(AT_ONCE, WIDTH)
    block = tl.reshape(tl.arange(0, WIDTH), [WIDTH // GROUPS, GROUPS])
    bounds = tl.reshape(bounds, [WIDTH // GROUPS, GROUPS])
    arrivals = tl.reshape(arrivals, [WIDTH // GROUPS, GROUPS])
    slot = request_slot(requests, request)
    best = row * 0.0
    winner = row * 0 + NO_BLOCK
    left = tl.max(tl.max(bounds, 1), 0)
    while left * SLACK > best:
        highest = tl.max(bounds, 0)
        chosen = tl.min(tl.where(bounds == highest[None, :], block, NO_BLOCK), 0)
        is_chosen = block == chosen[None, :]
        arrival = tl.sum(tl.where(is_chosen, arrivals, 0.0), 0)
        target_logits = target_quarters(
            target, adjust, requests, request, start, row, chosen, NUM_DRAFTS
        )
        draft_logits = draft_quarters_at(draft, slot, row, chosen, target.vocab_size)
        largest, mass = residual_statistics(
            target_logits, target_law, log_product, draft_logits, draft_law
        )
        score = tl.exp(largest) * mass / arrival
        highest_score = tl.max(score, 0)
        first = tl.min(tl.where(score == highest_score, chosen, NO_BLOCK), 0)
        better = (highest_score > best) | ((highest_score == best) & (first < winner))
        winner = tl.where(better & (highest_score > 0.0), first, winner)
        best = tl.maximum(best, highest_score)
        bounds = tl.where(is_chosen, -1.0, bounds)
        left = tl.max(tl.max(bounds, 1), 0)
    return winner
