"""Laws of rows from their summaries, for lossy policies: logits become log-probabilities.

This module refuses to make summaries.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .race import NEVER
from .recipe import load_draft_at, load_target, request_slot
from .row_draw import threshold_of


class Law(NamedTuple):
    """What turns a row's logits into log-probabilities."""

    row_max: Any
    log_total: Any
    inverse: Any
    threshold: Any


@triton.jit
def law_of_slot(call, slot, inverse):
    """The law of a row of statistics."""
    place = call.scratch.summaries + slot * 2
    return Law(tl.load(place), tl.load(place + 1), inverse, threshold_of(call, slot))


@triton.jit
def log_probs(logits, law):
    """Log-probabilities of a filtered row, elementwise."""
    log_prob = (logits - law.row_max) * law.inverse - law.log_total
    return tl.where(logits >= law.threshold, log_prob, NEVER)


@triton.jit
def row_log_probs(call, request, row, token_id, target_law, draft_law):
    """log p and log q of a row's tokens."""
    logits = load_target(
        call.target,
        call.adjust,
        call.requests,
        request.index,
        request.start,
        row,
        token_id,
        call.variant.num_drafts,
    )
    draft_slot = request_slot(call.requests, request.index)
    draft_logits = load_draft_at(call.draft, draft_slot, row, token_id, call.target.vocab_size)
    return log_probs(logits, target_law), log_probs(draft_logits, draft_law)


@triton.jit
def log_target_prob(call, request, row, drafted, row_max, log_total):
    """log p of a row's draft token, -inf where its filters cut it off."""
    logit = load_target(
        call.target,
        call.adjust,
        call.requests,
        request.index,
        request.start,
        row,
        drafted,
        call.variant.num_drafts,
    )
    log_p = (logit - row_max) * request.inverse - log_total
    if call.scratch.thresholds is not None:
        slot = request.index * call.variant.num_rows + row
        log_p = tl.where(logit >= tl.load(call.scratch.thresholds + slot), log_p, NEVER)
    return log_p
