"""Recovered tokens: block statistics of max(P p - q, 0) at a row, and a draw from them.

P is 1 except under block verification. This module refuses to decide which row that is.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .fast_log import fast_log
from .race import BLOCK, NEVER, block_winner, lowest_argmax, token_noise
from .random_bits import RECOVER
from .recipe import load_draft_at, load_target, request_slot
from .request import noise_key
from .row_draw import load_blocks, threshold_of
from .statistics import SPAN, quarter_token_ids, quarters_max, quarters_sum


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
def laws_of_row(call, request, row):
    """The target's and the draft's law of a row."""
    slot = request.index.to(tl.int64) * call.variant.num_rows + row
    target_law = law_of_slot(call, slot, request.inverse)
    draft_slot = slot + call.variant.num_drafts + 1
    return target_law, law_of_slot(call, draft_slot, request.draft_inverse)


@triton.jit
def residual_shares(call, request, row, token_id, target_law, draft_law, log_product):
    """Elementwise, the log P p that counts and what share of it is left after q."""
    log_p, log_q = row_log_probs(call, request, row, token_id, target_law, draft_law)
    log_p += log_product
    larger = log_p > log_q
    share = 1.0 - tl.exp(tl.where(larger, log_q - log_p, 0.0))
    return tl.where(larger, log_p, NEVER), share


@triton.jit
def residual_statistics(call, request, row, block, target_law, draft_law, log_product):
    """Per block, the largest log P p that counts and the mass of P p - q relative to it."""
    ids = quarter_token_ids(block)
    log_p_0, share_0 = residual_shares(call, request, row, ids, target_law, draft_law, log_product)
    log_p_1, share_1 = residual_shares(
        call, request, row, ids + SPAN, target_law, draft_law, log_product
    )
    log_p_2, share_2 = residual_shares(
        call, request, row, ids + 2 * SPAN, target_law, draft_law, log_product
    )
    log_p_3, share_3 = residual_shares(
        call, request, row, ids + 3 * SPAN, target_law, draft_law, log_product
    )
    largest = quarters_max(log_p_0, log_p_1, log_p_2, log_p_3)
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    mass = quarters_sum(
        tl.exp(log_p_0 - reference) * share_0,
        tl.exp(log_p_1 - reference) * share_1,
        tl.exp(log_p_2 - reference) * share_2,
        tl.exp(log_p_3 - reference) * share_3,
    )
    return largest, mass


@triton.jit
def read_residual(call, request, row, log_product, residual, part, parts):
    """Leave the block statistics of a part of a row's residual."""
    TILE: tl.constexpr = call.variant.residual_tile
    num_blocks = call.scratch.num_blocks
    target_law, draft_law = laws_of_row(call, request, row)
    out = call.scratch.residual + residual.to(tl.int64) * 2 * num_blocks
    for tile in range(part, tl.cdiv(num_blocks, TILE), parts):
        block = tile * TILE + tl.arange(0, TILE)
        inside = block < num_blocks
        largest = tl.full([TILE], NEVER, tl.float32)
        mass = tl.zeros([TILE], tl.float32)
        if has_target_mass(call, request, row, block):
            largest, mass = residual_statistics(
                call, request, row, block, target_law, draft_law, log_product
            )
        tl.store(out + block, largest, mask=inside)
        tl.store(out + num_blocks + block, mass, mask=inside)


@triton.jit
def has_target_mass(call, request, row, block):
    """Whether the target's filters left anything in some of these blocks."""
    alive = row >= 0
    if call.scratch.thresholds is not None:
        slot = request.index.to(tl.int64) * call.variant.num_rows + row
        place = call.scratch.statistics + slot * 2 * call.scratch.num_blocks + block
        largest = tl.load(place, mask=block < call.scratch.num_blocks, other=NEVER)
        alive = tl.max(largest, 0) > NEVER
    return alive


@triton.jit
def draw_residual(call, request, row, log_product, residual):
    """A token of max(P p - q, 0), whose block statistics are known; -1 if it has no mass."""
    largest, masses = load_blocks(
        call.scratch.residual, residual.to(tl.int64), call.scratch, True, call.variant.width
    )
    token = row * 0 - 1
    if tl.max(masses, 0) > 0.0:
        seed, position = noise_key(call, request, row)
        position += tl.zeros([1], tl.int32)
        draft_index = position * 0 + row + 1
        winner = block_winner(
            largest[None, :], masses[None, :], 1.0, False, seed, position, draft_index, RECOVER
        )
        token_id = winner[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        target_law, draft_law = laws_of_row(call, request, row)
        log_p, log_q = row_log_probs(call, request, row, token_id, target_law, draft_law)
        weights = log_difference(log_p + log_product, log_q)
        scores = weights - token_noise(seed, position, draft_index, RECOVER, winner)
        token = tl.min(lowest_argmax(scores, token_id), 0)
    return token


@triton.jit
def log_difference(log_p, log_q):
    """log max(p - q, 0) elementwise, -inf where q >= p."""
    larger = log_p > log_q
    ratio = tl.exp(tl.where(larger, log_q - log_p, NEVER))
    return tl.where(larger, log_p + fast_log(1.0 - ratio), NEVER)
