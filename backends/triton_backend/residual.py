"""Stage 4: block statistics of max(p - q, 0) at the rejected row, read with every program.

Every program decides anew, which costs less than a launch. This module refuses to draw.
"""

import triton
import triton.language as tl

from .accept import decide_probabilistic
from .race import NEVER
from .recipe import (
    first_row,
    load_draft_at,
    load_target,
    num_usable_drafts,
    request_slot,
    temperature_of,
)
from .statistics import block_sum, block_token_ids
from .verdicts import REJECTED


@triton.jit
def log_difference(log_p, log_q):
    """log max(p - q, 0) elementwise, -inf where q >= p."""
    larger = log_p > log_q
    ratio = tl.exp(tl.where(larger, log_q - log_p, NEVER))
    return tl.where(larger, log_p + tl.log(1.0 - ratio), NEVER)


@triton.jit
def residual_statistics(log_p, log_q):
    """Per block, the largest log p that counts and the mass of p - q relative to it."""
    larger = log_p > log_q
    counted = tl.where(larger, log_p, NEVER)
    largest = tl.max(tl.max(counted, 2), 0)
    reference = tl.where(largest == NEVER, 0.0, largest)
    share = 1.0 - tl.exp(tl.where(larger, log_q - log_p, 0.0))
    return largest, block_sum(tl.exp(counted - reference[None, :, None]) * share)


@triton.jit
def log_probs(logits, law):
    """Log-probabilities of a filtered row, elementwise; a law is what `law_of_row` returns."""
    row_max, log_total, inverse_temperature, threshold = law
    log_prob = (logits - row_max) * inverse_temperature - log_total
    return tl.where(logits >= threshold, log_prob, NEVER)


@triton.jit
def law_of_row(scratch, slot, inverse_temperature):
    """What turns a row's logits into log-probabilities: four scalars."""
    row_max = tl.load(scratch.summaries + slot * 2)
    log_total = tl.load(scratch.summaries + slot * 2 + 1)
    threshold = NEVER
    if scratch.thresholds is not None:
        threshold = tl.load(scratch.thresholds + slot)
    return row_max, log_total, inverse_temperature, threshold


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
):
    """Programs (request, part of the row's tiles)."""
    request = tl.program_id(0)
    inverse, greedy = temperature_of(target_recipe, request)
    draft_inverse, one_hot = temperature_of(draft_recipe, request)
    start, num_rows = first_row(target, request)
    num_drafts, _flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
    halt, kind = decide_probabilistic(
        target,
        draft,
        requests,
        adjust,
        scratch,
        request,
        start,
        num_rows,
        num_drafts,
        inverse,
        draft_inverse,
        one_hot,
        NUM_DRAFTS,
        ROWS,
    )
    if (kind == REJECTED) & (one_hot == 0) & (greedy == 0):
        target_slot = request.to(tl.int64) * ROWS + halt
        target_law = law_of_row(scratch, target_slot, inverse)
        draft_law = law_of_row(scratch, target_slot + NUM_DRAFTS + 1, draft_inverse)
        slot = request_slot(requests, request)
        out = scratch.residual + request.to(tl.int64) * 2 * scratch.num_blocks
        num_tiles = tl.cdiv(scratch.num_blocks, TILE)
        for tile in range(tl.program_id(1), num_tiles, tl.num_programs(1)):
            block = tile * TILE + tl.arange(0, TILE)
            inside = block < scratch.num_blocks
            alive = True
            if scratch.thresholds is not None:
                # Where the target's filters left nothing, nothing can be recovered.
                statistics = scratch.statistics + target_slot * 2 * scratch.num_blocks
                alive = tl.max(tl.load(statistics + block, mask=inside, other=NEVER), 0) > NEVER
            largest = tl.full([TILE], NEVER, tl.float32)
            mass = tl.zeros([TILE], tl.float32)
            if alive:
                token_id = block_token_ids(block)
                logits = load_target(
                    target, adjust, requests, request, start, halt, token_id, NUM_DRAFTS
                )
                log_p = log_probs(logits, target_law)
                logits = load_draft_at(draft, slot, halt, token_id, target.vocab_size)
                largest, mass = residual_statistics(log_p, log_probs(logits, draft_law))
            tl.store(out + block, largest, mask=inside)
            tl.store(out + scratch.num_blocks + block, mass, mask=inside)
