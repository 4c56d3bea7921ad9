"""Stage 4: block statistics of max(p - q, 0) at the rejected row, read with every program.

Each program decides anew, which costs less than a launch. This module refuses to draw.
"""

import triton
import triton.language as tl

from .accept import REJECTED, decide_probabilistic
from .race import BLOCK, NEVER
from .recipe import (
    first_row,
    load_draft_at,
    load_target,
    num_usable_drafts,
    request_slot,
    temperature_of,
)
from .statistics import HALF

DECISION_SIZE = tl.constexpr(8)


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
    weights = tl.exp(counted - reference[None, :, None]) * share
    for _ in tl.static_range(8):
        weights = tl.sum(tl.reshape(weights, [2, weights.shape[1], weights.shape[2] // 2, 2]), 3)
    return largest, tl.sum(tl.sum(weights, 2), 0)


@triton.jit
def log_probs(logits, row_max, log_total, inverse_temperature, threshold):
    """Log-probabilities of a filtered row, elementwise."""
    log_prob = (logits - row_max) * inverse_temperature - log_total
    return tl.where(logits >= threshold, log_prob, NEVER)


@triton.jit
def residual_kernel(
    target, draft, requests, adjust, target_recipe, draft_recipe, scratch,
    NUM_DRAFTS: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Programs (request, part) decide, and part 0 writes the decision down."""
    request = tl.program_id(0)
    part = tl.program_id(1)
    inverse, greedy = temperature_of(target_recipe, request)
    draft_inverse, one_hot = temperature_of(draft_recipe, request)
    if greedy == 0:
        start, num_rows = first_row(target, request)
        num_drafts, _flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
        halt, kind, target_max, target_log, draft_max, draft_log = decide_probabilistic(
            target, draft, requests, adjust, scratch, request, start, num_rows, num_drafts,
            inverse, draft_inverse, one_hot, NUM_DRAFTS, ROWS, CHUNK, WIDTH,
        )
        if part == 0:
            decision = scratch.decisions + request.to(tl.int64) * DECISION_SIZE
            tl.store(decision, halt.to(tl.float32))
            tl.store(decision + 1, kind.to(tl.float32))
            tl.store(decision + 2, target_max)
            tl.store(decision + 3, target_log)
            tl.store(decision + 4, draft_max)
            tl.store(decision + 5, draft_log)
        if (kind == REJECTED) & (one_hot == 0):
            target_threshold = NEVER
            draft_threshold = NEVER
            if scratch.thresholds is not None:
                target_threshold = tl.load(scratch.thresholds + request * ROWS + halt)
                draft_row = request * ROWS + NUM_DRAFTS + 1 + halt
                draft_threshold = tl.load(scratch.thresholds + draft_row)
            slot = request_slot(requests, request)
            out = scratch.residual + request.to(tl.int64) * 2 * scratch.num_blocks
            target_blocks = tl.cdiv(target.vocab_size, BLOCK)
            for tile in range(part, tl.cdiv(target_blocks, TILE), tl.num_programs(1)):
                block = tile * TILE + tl.arange(0, TILE)
                half = tl.arange(0, 2)[:, None, None] * HALF
                lane = tl.arange(0, HALF)[None, None, :]
                token_id = block[None, :, None] * BLOCK + half + lane
                logits = load_target(
                    target, adjust, requests, request, start, halt, token_id, NUM_DRAFTS
                )
                log_p = log_probs(logits, target_max, target_log, inverse, target_threshold)
                logits = load_draft_at(draft, slot, halt, token_id, target.vocab_size)
                log_q = log_probs(logits, draft_max, draft_log, draft_inverse, draft_threshold)
                largest, mass = residual_statistics(log_p, log_q)
                tl.store(out + block, largest, mask=block < target_blocks)
                tl.store(out + scratch.num_blocks + block, mass, mask=block < target_blocks)
