"""Stages 3 to 5: a program per target row judges it and draws the token that it would emit.

The last program to finish a request concludes it, except under block verification.
"""

import triton
import triton.language as tl

from .accept import leniency_of, open_draft, test_draft
from .device import wait_for_stage_before
from .draw import certain_token, set_up
from .logits import NEVER
from .outputs import ENDS, GOES_ON, STOP_DRAFT, STOP_MASK, conclude
from .queue import NUM_COUNTERS
from .random_bits import acceptance_bits, log_acceptance_uniform
from .records import law_of, store_decision
from .rows import open_request, open_row


@triton.jit
def decide_stage(call):
    """One program per target row."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    place = tl.program_id(0) % (NUM_DRAFTS + 1)
    request = open_request(call, tl.program_id(0) // (NUM_DRAFTS + 1))
    row = open_row(call, request.index * call.variant.num_rows + place)
    drafted = open_draft(call, row, place < request.num_drafts)
    wait_for_stage_before(call)
    kind = place * 0 + call.variant.invalid
    token = place * 0 - 1
    ratio = place * 0.0
    log_p = ratio
    if (place <= request.num_drafts) & row.exists:
        law, usable = law_of(call, row)
        if usable:
            kind, token, ratio, log_p = _judged(call, request, row, law, drafted)
        elif call.masks.words is not None:
            nothing = (law.log_total == NEVER) & (row.mask >= 0)
            kind = tl.where(nothing, STOP_MASK, kind)
    store_decision(call, row, kind, token, ratio, log_p)
    if call.variant.filters and tl.program_id(0) == 0:
        # No program counts any more.
        tl.store(call.scratch.counters + tl.arange(0, NUM_COUNTERS), 0)
    if call.variant.policy != "block":
        tl.debug_barrier()
        if tl.atomic_add(call.scratch.arrivals + request.index, 1) == NUM_DRAFTS:
            conclude(call, request)


@triton.jit
def _judged(call, request, row, law, drafted):
    """Judge a row with a law: its verdict, its token, and a decision's two numbers."""
    POLICY: tl.constexpr = call.variant.policy
    tested = (row.place < request.num_drafts) & (request.greedy == 0)
    position = request.position + row.place
    test = test_draft(call, row, law, drafted, tested)
    accepted = row.place >= 0
    first_number = law.row_max * 0.0
    second_number = law.row_max * 0.0
    recovers = row.place < 0
    draws = row.place >= 0
    if POLICY == "probabilistic":
        log_uniform = log_acceptance_uniform(request.seed, position, row.place + 1)
        accepted = log_uniform < test.log_ratio
        recovers = tested & test.usable & (accepted == 0)
        draws = recovers | (tested == 0)
    elif POLICY == "block":
        draws = tested == 0
        first_number, second_number = test.log_ratio, test.log_p
    elif POLICY == "rates":
        rate = row.place * 0
        for place in tl.static_range(len(call.variant.rates)):
            rate = tl.where(row.place == place, call.variant.rates[place], rate)
        accepted = acceptance_bits(request.seed, position, row.place + 1) < rate
    token = row.place * 0 - 1
    if draws:
        draw = set_up(call, request, row, law, test, recovers, law.row_max * 0.0)
        token = certain_token(call, row, draw)
    if POLICY == "strict" or POLICY == "fly":  # noqa: PLR1714, no sets in kernels
        accepted = token == test.token
    elif POLICY != "rates":
        accepted = tl.where(request.greedy, token == test.token, accepted)
    if call.variant.is_lossy and tested & test.usable:
        lenient, second_number, first_number = leniency_of(call, row, law, test)
        if POLICY != "fly":
            accepted = lenient
    if call.masks.words is not None:
        # Under other policies a token of probability 0 does not survive.
        if POLICY == "rates":
            accepted = accepted & test.allowed
        if POLICY == "fly":
            second_number = tl.where(test.allowed, second_number, 2.0 * second_number)
            first_number = tl.where(test.allowed | test.dense, first_number, 0.0)
    kind = tl.where(accepted & (row.place < request.num_drafts), GOES_ON, ENDS)
    kind = tl.where(test.usable | (tested == 0), kind, STOP_DRAFT)
    return kind, token, first_number, second_number
