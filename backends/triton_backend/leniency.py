"""What lossy policies ask of a row beyond its law: entropy, near-best tokens, how far they move it.

This module refuses to decide how much of a draft stands.
"""

import triton
import triton.language as tl

from .candidates import CAPACITY
from .laws import log_probs, row_log_probs
from .listed_rows import listed, load_blocks, next_blocks
from .listed_threshold import ranked_threshold
from .race import BLOCK, NEVER

TILE = tl.constexpr(4)


@triton.jit
def entropy(call, request, row, largest, law):
    """The entropy of a target row's law in nats; largest is [WIDTH], -inf where nothing is kept."""
    places, num_listed = listed(largest > NEVER)
    total = law.row_max.to(tl.float64) * 0.0
    for first in range(0, num_listed, TILE):
        block = next_blocks(places, first, call.scratch.num_blocks, TILE)
        logits = load_blocks(
            call.target,
            call.draft,
            call.adjust,
            call.requests,
            (request.index, request.start, row),
            block,
            call.variant.num_drafts,
        )
        log_p = tl.minimum(log_probs(logits, law), 0.0)
        terms = tl.where(log_p > NEVER, -log_p * tl.exp(log_p), 0.0)
        total += tl.sum(tl.sum(terms, 1).to(tl.float64), 0)
    return total.to(tl.float32)


@triton.jit
def near_best(call, request, row, largest, law, top_n, delta, KEY_SHIFT: tl.constexpr):
    """The least log p among the n most likely tokens that are within delta of the most likely.

    They are what min-p and top-k would leave of the law. Arguments as in `least_accepted`.
    """
    slot = request.index.to(tl.int64) * call.variant.num_rows + row
    share = 1.0 - delta * tl.exp(law.log_total)
    reach = tl.log(tl.maximum(share, 0.0)) / law.inverse
    least_logit = tl.maximum(tl.minimum(law.row_max + reach, law.row_max), law.threshold)
    level = ranked_threshold(
        call.target,
        call.draft,
        call.adjust,
        call.requests,
        (request.index, request.start, row),
        largest,
        call.scratch.candidates + slot * CAPACITY,
        call.scratch.num_blocks,
        law.row_max,
        least_logit,
        row * 0 + top_n,
        TILE,
        call.variant.num_drafts,
        KEY_SHIFT,
    )
    return (level - law.row_max) * law.inverse - law.log_total


@triton.jit
def accepts(call, log_p, least):
    """Whether tokens of these log-probabilities would survive."""
    if call.variant.policy == "typical":
        accepted = log_p > least
    elif call.variant.policy == "relaxed":
        accepted = (log_p >= least) & (log_p > NEVER)
    else:
        accepted = log_p < float("inf")
    return accepted


@triton.jit
def variation(call, request, row, largest, least, target_law, draft_law):
    """The total variation that accepting drafts of a dense law causes at a row.

    A token that survives replaces a draw from p, so what is emitted is q a + p (1 - sum(q a)); as
    both laws have the same mass, their distance is what q a has above p sum(q a).
    """
    largest_log_p = (largest - target_law.row_max) * target_law.inverse - target_law.log_total
    inside = tl.arange(0, largest.shape[0]) < call.scratch.num_blocks
    places, num_listed = listed(accepts(call, largest_log_p, least) & inside)
    survived = target_law.row_max.to(tl.float64) * 0.0
    moved = survived
    for first in range(0, num_listed, TILE):
        block = next_blocks(places, first, call.scratch.num_blocks, TILE)
        token_id = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        log_p, log_q = row_log_probs(call, request, row, token_id, target_law, draft_law)
        share = tl.where(accepts(call, log_p, least), tl.exp(log_q), 0.0)
        survived += tl.sum(tl.sum(share, 1).to(tl.float64), 0)
    total = survived.to(tl.float32)
    for first in range(0, num_listed, TILE):
        block = next_blocks(places, first, call.scratch.num_blocks, TILE)
        token_id = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        log_p, log_q = row_log_probs(call, request, row, token_id, target_law, draft_law)
        share = tl.where(accepts(call, log_p, least), tl.exp(log_q), 0.0)
        above = tl.maximum(share - tl.exp(log_p) * total, 0.0)
        moved += tl.sum(tl.sum(above, 1).to(tl.float64), 0)
    return moved.to(tl.float32)
