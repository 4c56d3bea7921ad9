"""Stage 3: how much of a draft is accepted; one function per kind of policy, rows in chunks.

Chunks behind the one that decides are not looked at. This module refuses to draw recovered tokens.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .race import NEVER
from .random_bits import acceptance_bits, log_acceptance_uniform
from .recipe import load_draft_at, load_target, request_slot
from .rivals import first_end
from .rows import (
    are_usable,
    load_statistics,
    load_summaries,
    target_samples,
    thresholds_of,
)
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
    arrivals,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    ALL_GREEDY: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A draft token survives iff it is the target's own sample: (row, why it ended, token).

    `arrivals` are the `block_arrivals` of all rows; None where rows take several chunks, or none.
    """
    halt = num_drafts * 0 + NOWHERE
    kind = num_drafts * 0
    token = num_drafts * 0
    last_row = tl.minimum(num_drafts, num_rows - 1)
    if scratch.rivals is not None:
        # Rows behind it may not have been read.
        last_row = tl.minimum(last_row, first_end(scratch, request, NUM_DRAFTS, NUM_DRAFTS))
    for first in range(0, NUM_DRAFTS + 1, CHUNK):
        if halt == NOWHERE:
            row = first + tl.arange(0, CHUNK)
            valid = row <= last_row
            slot = (request * ROWS + row).to(tl.int64)
            pointers = scratch.statistics + slot * 2 * scratch.num_blocks
            largest, masses = load_statistics(
                pointers, scratch.num_blocks, scratch.num_blocks, valid, not ALL_GREEDY, WIDTH
            )
            if scratch.summaries is None:
                usable = are_usable(largest, masses)
            else:
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
                arrivals,
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


class Drafted(NamedTuple):
    """What the caller says about a request's draft, per row, see `open_draft`."""

    row: Any
    """[rows] int32."""
    valid: Any
    """Whether the request has the row."""
    tested: Any
    """Whether the row tests a draft token."""
    dense: Any
    """The same, and that its law is in the draft logits."""
    target_logits: Any
    """Its draft token's logits, in the target and, where dense, in the draft: [rows] float32."""
    draft_logits: Any
    log_uniform: Any
    """Log of the row's acceptance uniform: [rows] float32."""


class Laws(NamedTuple):
    """What turns logits of rows into log-probabilities: [rows] float32 each."""

    row_max: Any
    log_total: Any
    threshold: Any


@triton.jit
def open_draft(
    target,
    draft,
    requests,
    adjust,
    request,
    start,
    num_rows,
    num_drafts,
    one_hot,
    FIRST: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
):
    """All that policies that test p against q go by and need not wait for.

    FIRST is the draft index of row 0: 1 where row i tests token i + 1, 0 where it tells whether the
    draft survives through token i.
    """
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    valid = (row <= num_drafts) & (row < num_rows)
    tested = valid & (row < num_drafts)
    token_id = drafted_tokens(requests, request, row, num_drafts)
    target_logits = load_target(
        target,
        adjust,
        requests,
        request,
        start,
        row,
        tl.where(tested, token_id, target.vocab_size),
        NUM_DRAFTS,
    )
    dense = row < 0
    draft_logits = row * 0.0
    if draft.logits is not None:
        dense = tested & (one_hot == 0)
        slot = request_slot(requests, request)
        known_id = tl.where(dense, token_id, -1)
        draft_logits = load_draft_at(draft, slot, row, known_id, target.vocab_size)
    seed = tl.load(requests.seeds + request)
    position = tl.load(requests.positions + request).to(tl.int32) + row + (FIRST - 1)
    log_uniform = log_acceptance_uniform(seed, position, row + FIRST)
    return Drafted(row, valid, tested, dense, target_logits, draft_logits, log_uniform)


@triton.jit
def rows_of(drafted, num_rows):
    """The same of no more than so many rows."""
    there = drafted.row < num_rows
    return Drafted(
        drafted.row,
        drafted.valid & there,
        drafted.tested & there,
        drafted.dense & there,
        drafted.target_logits,
        drafted.draft_logits,
        drafted.log_uniform,
    )


@triton.jit
def log_probs_at(laws, logits, inverse_temperature):
    """Log-probability of one logit per row: [rows]."""
    log_prob = (logits - laws.row_max) * inverse_temperature - laws.log_total
    return tl.where(logits >= laws.threshold, log_prob, NEVER)


@triton.jit
def draft_ratios(
    draft,
    scratch,
    request,
    drafted,
    inverse_temperature,
    draft_inverse,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """What policies that test p against q go by, per row of a request.

    Returns:
        (log p - log q of its draft token, log p, target row usable, draft row usable), each
        [rows]; the ratio is -inf where p is 0 and +inf where only q is. Then the target's and the
        draft's `Laws`.
    """
    slot = (request * ROWS + drafted.row).to(tl.int64)
    row_max, log_total, usable = load_summaries(scratch, slot, drafted.valid)
    laws = Laws(row_max, log_total, thresholds_of(scratch, slot, drafted.valid))
    draft_laws = laws
    log_p = log_probs_at(laws, drafted.target_logits, inverse_temperature)
    log_p = tl.where(drafted.tested, log_p, NEVER)
    draft_usable = drafted.row >= 0
    if draft.logits is not None:
        slot += NUM_DRAFTS + 1
        draft_max, draft_total, row_usable = load_summaries(scratch, slot, drafted.dense)
        draft_laws = Laws(draft_max, draft_total, thresholds_of(scratch, slot, drafted.dense))
        log_q = log_probs_at(draft_laws, drafted.draft_logits, draft_inverse)
        log_q = tl.where(drafted.dense, log_q, 0.0)
        draft_usable = row_usable | (drafted.dense == 0)
    else:
        log_q = tl.zeros_like(log_p)
    log_ratio = tl.where(log_p > NEVER, log_p - log_q, NEVER)
    return log_ratio, log_p, usable & drafted.valid, draft_usable, laws, draft_laws


@triton.jit
def decide_probabilistic(
    draft,
    scratch,
    request,
    drafted,
    num_drafts,
    inverse_temperature,
    draft_inverse,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A draft token survives iff log u < log p - log q: (row, why it ended, both laws)."""
    log_ratio, _log_p, target_usable, draft_usable, laws, draft_laws = draft_ratios(
        draft, scratch, request, drafted, inverse_temperature, draft_inverse, NUM_DRAFTS, ROWS
    )
    accepted = drafted.log_uniform < log_ratio
    halt, kind = first_halt(drafted.row, num_drafts, target_usable, draft_usable, accepted)
    return halt, kind, laws, draft_laws
