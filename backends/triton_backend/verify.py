"""The whole verification in one launch: read rows, judge them, read the residual, conclude.

Programs start in the order of their index, so those that wait for a verdict wait for programs that
are running or done. Which rows and residuals are skipped depends on timing, what is emitted does
not: nobody asks for what was skipped. This module refuses to say how anything is computed.
"""

import triton
import triton.language as tl

from .block_rule import last_success, load_ratios, residual_needed
from .judge import judge_row
from .outputs import write_outputs
from .random_bits import RECOVER
from .read_rows import read_part
from .recover import draw_residual, read_residual
from .request import drafted_token, open_request
from .row_draw import draw_another
from .verdicts import (
    REJECTED,
    STOP_TARGET,
    first_halt,
    is_behind_halt,
    publish,
    reset,
    wait_for_halt,
)

SKIPPED = tl.constexpr(1 << 20)


@triton.jit
def verify_kernel(call, num_reqs, parts, tiles_per_part, residual_parts):
    """Programs (row, request, part) that read, then (row, request, part) that recover.

    Rows come before requests, so that a row is seldom read when an earlier one has been rejected.
    Without `variant.reads` all statistics are known, and one program judges each row.
    """
    NUM_ROWS: tl.constexpr = call.variant.num_drafts + 1
    num_readers = num_reqs * parts * NUM_ROWS
    num_arrivals = num_reqs * 0 + NUM_ROWS
    if call.variant.reads:
        num_readers = num_reqs * parts * call.variant.num_rows
    if call.scratch.residual is not None:
        num_arrivals += residual_parts * call.variant.num_residuals
    program = tl.program_id(0)
    recovers = program >= num_readers
    unit = tl.where(recovers, (program - num_readers) // residual_parts, program // parts)
    request = open_request(call, unit % num_reqs)
    if program < num_readers:
        arrives = read_and_judge(
            call, request, unit // num_reqs, program % parts, parts, tiles_per_part
        )
    else:
        if call.scratch.residual is not None:
            part = (program - num_readers) % residual_parts
            recover_part(call, request, unit // num_reqs, part, residual_parts)
        arrives = recovers
    if arrives:
        tl.debug_barrier()
        if tl.atomic_add(call.scratch.progress + request.index * 2, 1) == num_arrivals - 1:
            conclude(call, request)


@triton.jit
def read_and_judge(call, request, order, part, parts, tiles_per_part):
    """Read a part of a row; whether this program was the last at it, and has judged it."""
    row = order
    is_draft = row < 0
    num_programs = parts
    if call.variant.reads and call.draft.logits is not None:
        row = order // 2
        is_draft = order % 2 == 1
        num_programs = parts * tl.where(row < call.variant.num_drafts, 2, 1)
    last = order >= 0
    behind = order < 0
    if call.variant.reads:
        skips = row < 0
        if call.variant.num_drafts > 0:
            skips = is_behind_halt(call, request.index, row)
        if (row <= request.num_drafts) & (row < request.num_rows) & (skips == 0):
            if is_draft == 0:
                read_part(call, request, row, part, tiles_per_part, False)
            elif call.draft.logits is not None:
                if request.dense & (row < request.num_drafts):
                    read_part(call, request, row, part, tiles_per_part, True)
        tl.debug_barrier()
        arrivals = call.scratch.arrivals + request.index * call.variant.num_rows + row
        before = tl.atomic_add(arrivals, tl.where(skips, 1 + SKIPPED, 1))
        last = before % SKIPPED == num_programs - 1
        # What one program of the row has skipped, nobody may judge, and nobody has to.
        behind = skips | (before >= SKIPPED)
        if last:
            tl.store(arrivals, 0)
    if last:
        kind = row * 0 + STOP_TARGET
        token = row * 0 - 1
        if behind == 0:
            kind, token = judge_row(call, request, row)
        publish(call, request, row, kind, token)
    return last


@triton.jit
def recover_part(call, request, order, part, parts):
    """Read a part of the residual that a request may be drawn from."""
    halt, kind = wait_for_halt(call, request.index)
    tested = request.dense
    if call.variant.any_greedy:
        tested = tested & (request.greedy == 0)
    if call.variant.policy == "block":
        chosen = -order + (call.variant.num_drafts - 1)
        row, products, _log_p, log_u = load_ratios(call, request, halt)
        if tested & residual_needed(row, chosen, halt, products, log_u):
            log_product = tl.sum(tl.where(row == chosen, products, 0.0), 0)
            residual = request.index * call.variant.num_drafts + chosen
            read_residual(call, request, chosen, log_product, residual, part, parts)
    elif tested & (kind == REJECTED):
        read_residual(call, request, halt, 0.0, request.index, part, parts)


@triton.jit
def conclude(call, request):
    """Decide how much of a request's draft stands, draw the token behind it, write it all."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    POLICY: tl.constexpr = call.variant.policy
    halt, kind, _unknown = first_halt(call, request.index)
    residual = request.index
    log_product = 0.0
    tested = halt >= 0
    if call.variant.any_greedy:
        tested = request.greedy == 0
    if POLICY == "block":
        residual = request.index * NUM_DRAFTS
        if tested:
            num_kept = halt
            halt, log_product = last_success(call, request, num_kept)
            kind = tl.where(halt == num_kept, kind, REJECTED)
            residual += halt
    token = tl.load(call.scratch.tokens + request.index * (NUM_DRAFTS + 1) + halt)
    if call.variant.tests:
        if tested & (kind == REJECTED):
            token = recovered_token(call, request, halt, log_product, residual)
    write_outputs(call, request, halt, kind, token)
    reset(call, request.index)


@triton.jit
def recovered_token(call, request, row, log_product, residual):
    """What follows a rejected token.

    Where the draft is one-hot, or rounding leaves nothing of p - q, that is a draw from p without
    the rejected token.
    """
    token = row * 0 - 1
    if call.draft.logits is not None:
        if request.dense:
            token = draw_residual(call, request, row, log_product, residual)
    if token < 0:
        drafted = drafted_token(call, request, row)
        token = draw_another(call, request, row, drafted, RECOVER, row + 1)
    return token
