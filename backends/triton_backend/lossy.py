"""Verification by the lossy policies, in two launches: every row by itself, then every request.

A row's program draws its sample, judges its draft token and says how far that moves its law. This
module refuses to be fast at the price of another kernel: it reads rows again.
"""

import triton
import triton.language as tl

from .arguments import Adjustments, Call, DraftRows, Requests, Scratch, TargetRows
from .laws import law_of_slot, log_target_prob
from .leniency import accepts, entropy, near_best, variation
from .outputs import write_outputs
from .request import drafted_token, open_request
from .row_draw import block_values, draw_from_row, summary_of
from .verdicts import GOES_ON, NOWHERE, REJECTED, STOP_TARGET, at_row, reset, verdict_of


@triton.jit
def lossy_rows_kernel(call, strictness, delta, top_n, KEY_SHIFT: tl.constexpr):
    """One program per target row; all statistics are known.

    Args:
        call: see `arguments`.
        strictness: epsilon of typical acceptance; the least entropy, in nats, of FLy.
        delta: of typical and of relaxed acceptance.
        top_n: of relaxed acceptance.
        KEY_SHIFT: see `filter_kernel`.
    """
    # Loops of Triton 3.6 lose integers that are 1, hence constants, unless stored anew.
    target = TargetRows(*call.target)
    draft = DraftRows(*call.draft)
    requests = Requests(*call.requests)
    adjust = Adjustments(*call.adjust)
    scratch = Scratch(*call.scratch)
    judge_leniently(
        Call(
            target,
            draft,
            requests,
            adjust,
            call.target_recipe,
            call.draft_recipe,
            scratch,
            call.outputs,
            call.stream,
            call.draft_index,
            call.variant,
        ),
        strictness,
        delta,
        top_n,
        KEY_SHIFT,
    )


@triton.jit
def judge_leniently(call, strictness, delta, top_n, KEY_SHIFT: tl.constexpr):
    """Judge the row of this program, and draw what follows if the draft ends there."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    row = tl.program_id(0) % (NUM_DRAFTS + 1)
    request = open_request(call, tl.program_id(0) // (NUM_DRAFTS + 1))
    kind = row * 0 + STOP_TARGET
    token = row * 0 - 1
    caused = row * 0.0
    undecided = row * 0.0
    if (row <= request.num_drafts) & (row < request.num_rows):
        slot = request.index.to(tl.int64) * call.variant.num_rows + row
        largest, masses = block_values(call, slot)
        _row_max, _log_total, usable = summary_of(call, slot)
        token = draw_from_row(call, request, row, largest, masses, call.stream, call.draft_index)
        accepted = token == drafted_token(call, request, row)
        draft_usable = row >= 0
        if usable & (row < request.num_drafts) & (request.greedy == 0):
            draft_usable = is_draft_usable(call, request, row)
            if draft_usable:
                lenient, undecided, caused = leniency_of_row(
                    call, request, row, largest, strictness, delta, top_n, KEY_SHIFT
                )
                if call.variant.policy != "fly":
                    accepted = lenient
        kind = verdict_of(row, request.num_drafts, usable, draft_usable, accepted)
    place = request.index.to(tl.int64) * (NUM_DRAFTS + 1) + row
    tl.store(call.scratch.verdicts + place, kind + 1)
    tl.store(call.scratch.tokens + place, token)
    tl.store(call.scratch.ratios + place * 2, caused)
    tl.store(call.scratch.ratios + place * 2 + 1, undecided)


@triton.jit
def is_draft_usable(call, request, row):
    """Whether the draft's law of a row is known."""
    usable = row >= 0
    if call.draft.logits is not None:
        if request.dense:
            slot = request.index.to(tl.int64) * call.variant.num_rows
            slot += row + call.variant.num_drafts + 1
            log_total = tl.load(call.scratch.summaries + slot * 2 + 1)
            usable = (log_total > float("-inf")) & (log_total < float("inf"))
    return usable


@triton.jit
def leniency_of_row(call, request, row, largest, strictness, delta, top_n, KEY_SHIFT: tl.constexpr):
    """Whether a row's draft token survives, whether FLy may forgive it, and the variation caused.

    Under FLy, survival is for others to decide, and the variation is that of forgiveness.
    """
    POLICY: tl.constexpr = call.variant.policy
    slot = request.index.to(tl.int64) * call.variant.num_rows + row
    target_law = law_of_slot(call, slot, request.inverse)
    least = row * 0.0 - float("inf")
    undecided = row * 0.0
    if POLICY == "relaxed":
        least = near_best(call, request, row, largest, target_law, top_n, delta, KEY_SHIFT)
    else:
        nats = entropy(call, request, row, largest, target_law)
        if POLICY == "typical":
            least = tl.minimum(tl.log(strictness + nats * 0.0), tl.log(delta + nats * 0.0) - nats)
        else:
            undecided = tl.where(nats >= strictness, 1.0, 0.0)
    drafted = drafted_token(call, request, row)
    log_p = log_target_prob(call, request, row, drafted, target_law.row_max, target_law.log_total)
    accepted = accepts(call, log_p, least)
    caused = tl.where(accepted, tl.maximum(1.0 - tl.exp(log_p), 0.0), 0.0)
    if call.draft.logits is not None:
        if request.dense:
            draft_law = law_of_slot(call, slot + call.variant.num_drafts + 1, request.draft_inverse)
            caused = variation(call, request, row, largest, least, target_law, draft_law)
    return accepted, undecided, caused


@triton.jit
def lossy_requests_kernel(call, window):
    """One program per request: how much of its draft stands, and all that is returned.

    Args:
        call: see `arguments`.
        window: how many tokens must equal the target's samples behind one that FLy forgives.
    """
    target = TargetRows(*call.target)
    draft = DraftRows(*call.draft)
    requests = Requests(*call.requests)
    adjust = Adjustments(*call.adjust)
    scratch = Scratch(*call.scratch)
    conclude(
        Call(
            target,
            draft,
            requests,
            adjust,
            call.target_recipe,
            call.draft_recipe,
            scratch,
            call.outputs,
            call.stream,
            call.draft_index,
            call.variant,
        ),
        window,
    )


@triton.jit
def conclude(call, window):
    """Decide how much of the draft of this program's request stands, and write it all."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    request = open_request(call, tl.program_id(0))
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    inside = row <= NUM_DRAFTS
    place = request.index.to(tl.int64) * (NUM_DRAFTS + 1) + row
    kind = tl.load(call.scratch.verdicts + place, mask=inside, other=STOP_TARGET + 1) - 1
    token = tl.load(call.scratch.tokens + place, mask=inside, other=-1)
    caused = tl.load(call.scratch.ratios + place * 2, mask=inside, other=0.0)
    if call.variant.policy == "fly":
        undecided = tl.load(call.scratch.ratios + place * 2 + 1, mask=inside, other=0.0)
        forgiven = undecided > 0.0
        for ahead in range(1, window + 1):
            follows = row + ahead <= NUM_DRAFTS
            verdict = tl.load(call.scratch.verdicts + place + ahead, mask=follows, other=0)
            forgiven = forgiven & (verdict - 1 == GOES_ON)
        kind = tl.where(forgiven & (kind == REJECTED), GOES_ON, kind)
        caused = tl.where(forgiven, caused, 0.0)
    halt = tl.min(tl.where(kind != GOES_ON, row, NOWHERE), 0)
    write_outputs(
        call.outputs,
        call.requests,
        request.index,
        halt,
        at_row(kind, row, halt),
        at_row(token, row, halt),
        request.flagged,
        request.num_drafts,
        NUM_DRAFTS,
        call.variant.invalid,
    )
    decided = (row <= halt) & ((kind == GOES_ON) | (kind == REJECTED))
    tl.store(call.outputs.total_variation + place, tl.where(decided, caused, 0.0), mask=inside)
    tl.debug_barrier()
    reset(call, request.index)
