"""A row's verdict, from its block statistics, and what it draws if the draft ends there.

Rows are judged on their own and side by side; see `conclude` for what follows. This module refuses
to draw recovered tokens.
"""

import triton
import triton.language as tl

from .race import NEVER
from .random_bits import acceptance_bits, log_acceptance_uniform
from .recipe import load_draft_at, load_target, request_slot
from .request import drafted_token, noise_key
from .row_draw import block_values, draw_from_row, summarise
from .verdicts import BONUS, GOES_ON, REJECTED, STOP_TARGET, verdict_of


@triton.jit
def judge_row(call, request, row):
    """(why a row ends the draft, or GOES_ON; the token it draws, -1 if none is drawn yet)."""
    POLICY: tl.constexpr = call.variant.policy
    kind = row * 0 + STOP_TARGET
    token = row * 0 - 1
    if (row <= request.num_drafts) & (row < request.num_rows):
        slot = request.index.to(tl.int64) * call.variant.num_rows + row
        largest, masses = block_values(call, slot)
        row_max, log_total, usable = summarise(call, slot, largest, masses, request.inverse)
        drafted = drafted_token(call, request, row)
        accepted = row < 0
        draft_usable = row >= 0
        if POLICY == "rates":
            accepted = at_set_rate(call, request, row)
        elif POLICY != "strict":
            accepted, draft_usable = tested(call, request, row, drafted, row_max, log_total)
        kind = verdict_of(row, request.num_drafts, usable, draft_usable, accepted)
        draws = kind <= BONUS
        if call.variant.tests:
            draws = kind == BONUS
            if call.variant.any_greedy:
                draws = draws | (request.greedy & (kind == REJECTED))
        if draws:
            token = draw_from_row(
                call, request, row, largest, masses, call.stream, call.draft_index, None
            )
            if POLICY != "rates":
                kind = tl.where((kind == REJECTED) & (token == drafted), GOES_ON, kind)
    return kind, token


@triton.jit
def at_set_rate(call, request, row):
    """Whether a row accepts its token at a set rate, in units of 2**-23."""
    seed, position = noise_key(call, request, row)
    rate = row * 0
    for place in tl.static_range(len(call.variant.rates)):
        rate = tl.where(row == place, call.variant.rates[place], rate)
    return acceptance_bits(seed, position, row + 1) < rate


@triton.jit
def tested(call, request, row, drafted, row_max, log_total):
    """Whether a row accepts its token by p against q, and whether its draft row is usable.

    Block verification does not decide by row: there every row goes on, and leaves its ratio.
    """
    log_p = log_target_prob(call, request, row, drafted, row_max, log_total)
    log_q = row.to(tl.float32) * 0.0
    usable = row >= 0
    if call.draft.logits is not None:
        if request.dense & (row < request.num_drafts):
            log_q, usable = log_draft_prob(call, request, row, drafted)
    log_ratio = tl.where(log_p > NEVER, log_p - log_q, NEVER)
    if call.variant.policy == "block":
        place = request.index.to(tl.int64) * (call.variant.num_drafts + 1) + row
        tl.store(call.scratch.ratios + place * 2, log_ratio)
        tl.store(call.scratch.ratios + place * 2 + 1, log_p)
        accepted = row >= 0
    else:
        seed, position = noise_key(call, request, row)
        accepted = log_acceptance_uniform(seed, position, row + 1) < log_ratio
    if call.variant.any_greedy:
        accepted = accepted & (request.greedy == 0)
        usable = usable | request.greedy
    return accepted, usable


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


@triton.jit
def log_draft_prob(call, request, row, drafted):
    """log q of a row's draft token, and whether the draft row is usable."""
    slot = request.index.to(tl.int64) * call.variant.num_rows + call.variant.num_drafts + 1 + row
    largest, masses = block_values(call, slot)
    row_max, log_total, usable = summarise(call, slot, largest, masses, request.draft_inverse)
    draft_slot = request_slot(call.requests, request.index)
    logit = load_draft_at(call.draft, draft_slot, row, drafted, call.target.vocab_size)
    log_q = (logit - row_max) * request.draft_inverse - log_total
    if call.scratch.thresholds is not None:
        log_q = tl.where(logit >= tl.load(call.scratch.thresholds + slot), log_q, NEVER)
    return log_q, usable
