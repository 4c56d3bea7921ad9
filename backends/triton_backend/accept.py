"""Stage 3: how much of a draft is accepted; one function per kind of policy, rows in chunks.

Chunks behind the one that decides are not looked at. This module refuses to draw recovered tokens.
"""

import triton
import triton.language as tl

from .race import NEVER
from .random_bits import acceptance_bits, log_acceptance_uniform
from .recipe import load_draft_at, load_target, request_slot
from .rows import load_statistics, load_summaries, target_samples, thresholds_of
from .verdicts import GOES_ON, NOWHERE, at_row, verdict_of


@triton.jit
def first_halt(row, num_drafts, target_usable, draft_usable, accepted):
    """The first row of a chunk that ends the draft and why; (NOWHERE, 0) if none does."""
    kind = verdict_of(row, num_drafts, target_usable, draft_usable, accepted)
    halt = tl.min(tl.where(kind != GOES_ON, row, NOWHERE), 0)
    return halt, at_row(kind, row, halt)


@triton.jit
def drafted_tokens(requests, request, row, num_drafts):
    """The draft tokens that a chunk of rows tests: [rows] int32, 0 where there is none."""
    ids = requests.draft_token_ids + request.to(tl.int64) * requests.draft_stride
    return tl.load(ids + row, mask=row < num_drafts, other=0).to(tl.int32)


@triton.jit
def decide_strict(
    target,
    requests,
    adjust,
    scratch,
    request,
    start,
    num_rows,
    num_drafts,
    inverse_temperature,
    greedy,
    stream,
    draft_index,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    ALL_GREEDY: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A draft token survives iff it is the target's own sample: (row, why it ended, token)."""
    halt = num_drafts * 0 + NOWHERE
    kind = num_drafts * 0
    token = num_drafts * 0
    for first in range(0, NUM_DRAFTS + 1, CHUNK):
        if halt == NOWHERE:
            row = first + tl.arange(0, CHUNK)
            valid = (row <= num_drafts) & (row < num_rows)
            slot = (request * ROWS + row).to(tl.int64)
            pointers = scratch.statistics + slot * 2 * scratch.num_blocks
            largest, masses = load_statistics(
                pointers, scratch.num_blocks, scratch.num_blocks, valid, not ALL_GREEDY, WIDTH
            )
            _row_max, _log_total, usable = load_summaries(scratch, slot, valid)
            samples = target_samples(
                target,
                adjust,
                requests,
                scratch,
                request,
                start,
                row,
                valid,
                largest,
                masses,
                inverse_temperature,
                greedy,
                stream,
                row * 0 + draft_index,
                None,
                NUM_DRAFTS,
                ROWS,
                ALL_GREEDY,
            )
            accepted = row >= NUM_DRAFTS
            if NUM_DRAFTS > 0:
                accepted = drafted_tokens(requests, request, row, num_drafts) == samples
            halt, kind = first_halt(row, num_drafts, usable & valid, row >= 0, accepted)
            token = at_row(samples, row, halt)
    return halt, kind, token


@triton.jit
def decide_at_rates(
    scratch,
    requests,
    request,
    num_rows,
    num_drafts,
    RATES: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Draft tokens survive at set rates, RATES in units of 2**-23: (row, why it ended)."""
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    valid = (row <= num_drafts) & (row < num_rows)
    slot = (request * ROWS + row).to(tl.int64)
    _row_max, _log_total, usable = load_summaries(scratch, slot, valid)
    rate = row * 0
    for place in tl.static_range(len(RATES)):
        rate = tl.where(row == place, RATES[place], rate)
    seed = tl.load(requests.seeds + request)
    position = tl.load(requests.positions + request).to(tl.int32) + row
    accepted = acceptance_bits(seed, position, row + 1) < rate
    return first_halt(row, num_drafts, usable & valid, row >= 0, accepted)


@triton.jit
def log_target_prob(
    target,
    adjust,
    requests,
    scratch,
    request,
    start,
    row,
    valid,
    drafted,
    row_max,
    log_total,
    inverse_temperature,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """log p of each row's draft token: [rows]."""
    token_id = tl.where(valid, drafted, target.vocab_size)
    logits = load_target(target, adjust, requests, request, start, row, token_id, NUM_DRAFTS)
    threshold = thresholds_of(scratch, request * ROWS + row, valid)
    log_p = (logits - row_max) * inverse_temperature - log_total
    return tl.where(logits >= threshold, log_p, NEVER)


@triton.jit
def log_draft_prob(
    draft,
    target,
    requests,
    scratch,
    request,
    row,
    valid,
    drafted,
    row_max,
    log_total,
    inverse_temperature,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """log q of each row's draft token: [rows], 0 where its law is one-hot."""
    token_id = tl.where(valid, drafted, -1)
    slot = request_slot(requests, request)
    logits = load_draft_at(draft, slot, row, token_id, target.vocab_size)
    threshold = thresholds_of(scratch, request * ROWS + NUM_DRAFTS + 1 + row, valid)
    log_q = (logits - row_max) * inverse_temperature - log_total
    return tl.where(valid, tl.where(logits >= threshold, log_q, NEVER), 0.0)


@triton.jit
def draft_ratios(
    target,
    draft,
    requests,
    adjust,
    scratch,
    request,
    start,
    num_rows,
    num_drafts,
    inverse_temperature,
    draft_inverse,
    one_hot,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """What policies that test p against q go by, per row of a request.

    Returns:
        (row, log p - log q of its draft token, log p, target row usable, draft row usable), each
        [rows]; the ratio is -inf where p is 0 and +inf where only q is.
    """
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    valid = (row <= num_drafts) & (row < num_rows)
    tested = valid & (row < num_drafts)
    slot = (request * ROWS + row).to(tl.int64)
    row_max, log_total, usable = load_summaries(scratch, slot, valid)
    drafted = drafted_tokens(requests, request, row, num_drafts)
    log_p = log_target_prob(
        target,
        adjust,
        requests,
        scratch,
        request,
        start,
        row,
        tested,
        drafted,
        row_max,
        log_total,
        inverse_temperature,
        NUM_DRAFTS,
        ROWS,
    )
    log_q = row.to(tl.float32) * 0.0
    draft_usable = row >= 0
    if draft.logits is not None:
        dense = tested & (one_hot == 0)
        draft_max, draft_total, row_usable = load_summaries(scratch, slot + NUM_DRAFTS + 1, dense)
        log_q = log_draft_prob(
            draft,
            target,
            requests,
            scratch,
            request,
            row,
            dense,
            drafted,
            draft_max,
            draft_total,
            draft_inverse,
            NUM_DRAFTS,
            ROWS,
        )
        draft_usable = row_usable | (dense == 0)
    log_ratio = tl.where(log_p > NEVER, log_p - log_q, NEVER)
    return row, log_ratio, log_p, usable & valid, draft_usable


@triton.jit
def decide_probabilistic(
    target,
    draft,
    requests,
    adjust,
    scratch,
    request,
    start,
    num_rows,
    num_drafts,
    inverse_temperature,
    draft_inverse,
    one_hot,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A draft token survives iff log u < log p - log q: (row, why it ended)."""
    row, log_ratio, _log_p, target_usable, draft_usable = draft_ratios(
        target,
        draft,
        requests,
        adjust,
        scratch,
        request,
        start,
        num_rows,
        num_drafts,
        inverse_temperature,
        draft_inverse,
        one_hot,
        NUM_DRAFTS,
        ROWS,
    )
    seed = tl.load(requests.seeds + request)
    position = tl.load(requests.positions + request).to(tl.int32) + row
    log_u = log_acceptance_uniform(seed, position, row + 1)
    return first_halt(row, num_drafts, target_usable, draft_usable, log_u < log_ratio)
