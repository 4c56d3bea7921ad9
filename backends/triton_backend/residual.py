"""Stage 4: block statistics of max(p - q, 0) at the rejected row, read with every program.

Every program decides anew, which costs less than a launch. This module refuses to draw.
"""

import triton
import triton.language as tl

from .accept import decide_probabilistic, open_draft
from .overlap import let_next_stage_start, wait_for_stage_before
from .quarters import draft_quarters_at, quarters_max, quarters_sum, target_quarters
from .race import NEVER
from .recipe import (
    first_row,
    num_usable_drafts,
    request_slot,
    temperature_of,
)
from .verdicts import REJECTED, at_row


@triton.jit
def residual_statistics(target_logits, target_law, log_product, draft_logits, draft_law):
    """Per block, the largest log P p that exceeds log q, and the mass of P p - q relative to it.

    Args:
        target_logits, draft_logits: quarters of the same blocks.
        target_law, draft_law: see `log_probs`.
        log_product: log P; None for 0.
    """
    target_0, target_1, target_2, target_3 = target_logits
    draft_0, draft_1, draft_2, draft_3 = draft_logits
    log_p_0, share_0 = excess(target_0, target_law, log_product, draft_0, draft_law)
    log_p_1, share_1 = excess(target_1, target_law, log_product, draft_1, draft_law)
    log_p_2, share_2 = excess(target_2, target_law, log_product, draft_2, draft_law)
    log_p_3, share_3 = excess(target_3, target_law, log_product, draft_3, draft_law)
    largest = quarters_max((log_p_0, log_p_1, log_p_2, log_p_3))
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    weights = (
        tl.exp(log_p_0 - reference) * share_0,
        tl.exp(log_p_1 - reference) * share_1,
        tl.exp(log_p_2 - reference) * share_2,
        tl.exp(log_p_3 - reference) * share_3,
    )
    return largest, quarters_sum(weights)


@triton.jit
def excess(target_logits, target_law, log_product, draft_logits, draft_law):
    """Elementwise, log P p where it exceeds log q, else -inf, and 1 - q / (P p) there."""
    log_p = log_probs(target_logits, target_law)
    if log_product is not None:
        log_p += log_product
    log_q = log_probs(draft_logits, draft_law)
    larger = log_p > log_q
    share = 1.0 - tl.exp(tl.where(larger, log_q - log_p, 0.0))
    return tl.where(larger, log_p, NEVER), share


@triton.jit
def log_probs(logits, law):
    """Log-probabilities of a filtered row, elementwise; a law is what `law_at` returns."""
    row_max, log_total, inverse_temperature, threshold = law
    log_prob = (logits - row_max) * inverse_temperature - log_total
    return tl.where(logits >= threshold, log_prob, NEVER)


@triton.jit
def law_at(laws, row, chosen, inverse_temperature):
    """What turns one row's logits into log-probabilities: four scalars."""
    row_max = at_row(laws.row_max, row, chosen)
    log_total = at_row(laws.log_total, row, chosen)
    return row_max, log_total, inverse_temperature, at_row(laws.threshold, row, chosen)


@triton.jit
def residual_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Programs (request, part of the row's tiles)."""
    let_next_stage_start(OVERLAPS)
    request = tl.program_id(0)
    inverse, greedy = temperature_of(target_recipe, request)
    draft_inverse, one_hot = temperature_of(draft_recipe, request)
    start, num_rows = first_row(target, request)
    num_drafts, _flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
    drafted = open_draft(
        target,
        draft,
        requests,
        adjust,
        request,
        start,
        num_rows,
        num_drafts,
        one_hot,
        1,
        NUM_DRAFTS,
    )
    slot = request_slot(requests, request)
    wait_for_stage_before(OVERLAPS)
    halt, kind, laws, draft_laws = decide_probabilistic(
        draft, scratch, request, drafted, num_drafts, inverse, draft_inverse, NUM_DRAFTS, ROWS
    )
    rejected = (kind == REJECTED) & (one_hot == 0) & (greedy == 0)
    target_law = law_at(laws, drafted.row, halt, inverse)
    draft_law = law_at(draft_laws, drafted.row, halt, draft_inverse)
    target_slot = request.to(tl.int64) * ROWS + halt
    out = scratch.residual + request.to(tl.int64) * 2 * scratch.num_blocks
    num_tiles = tl.cdiv(scratch.num_blocks, TILE)
    for tile in range(tl.program_id(1), num_tiles, tl.num_programs(1)):
        block = tile * TILE + tl.arange(0, TILE)
        inside = block < scratch.num_blocks
        alive = rejected
        if scratch.thresholds is not None:
            # Where the target's filters left nothing, nothing can be recovered.
            statistics = scratch.statistics + target_slot * 2 * scratch.num_blocks
            there = tl.load(statistics + block, mask=inside & rejected, other=NEVER)
            alive = tl.max(there, 0) > NEVER
        largest = tl.full([TILE], NEVER, tl.float32)
        mass = tl.zeros([TILE], tl.float32)
        if alive:
            target_logits = target_quarters(
                target, adjust, requests, request, start, halt, block, NUM_DRAFTS
            )
            draft_logits = draft_quarters_at(draft, slot, halt, block, target.vocab_size)
            largest, mass = residual_statistics(
                target_logits, target_law, None, draft_logits, draft_law
            )
        tl.store(out + block, largest, mask=inside)
        tl.store(out + scratch.num_blocks + block, mass, mask=inside)
