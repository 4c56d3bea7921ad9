"""Verdicts on rows, where programs meet: published by whoever judges, read by whoever concludes.

This module refuses to judge.
"""

import triton
import triton.language as tl

REJECTED = tl.constexpr(0)
BONUS = tl.constexpr(1)
STOP_TARGET = tl.constexpr(2)
STOP_DRAFT = tl.constexpr(3)
GOES_ON = tl.constexpr(4)
NOWHERE = tl.constexpr(2147483647)


@triton.jit
def at_row(values, row, chosen):
    """The value at one row, whatever the others hold."""
    return tl.sum(tl.where(row == chosen, values, 0), 0)


@triton.jit
def verdict_of(row, num_drafts, target_usable, draft_usable, accepted):
    """Why rows end the draft, GOES_ON where they do not; elementwise."""
    kind = tl.where(accepted, GOES_ON, REJECTED)
    kind = tl.where(draft_usable, kind, STOP_DRAFT)
    kind = tl.where(row >= num_drafts, BONUS, kind)
    return tl.where(target_usable, kind, STOP_TARGET)


@triton.jit
def is_behind_halt(call, request_index, row):
    """Whether an earlier row is known to end the draft, so that nobody asks for this one."""
    known = tl.load(call.scratch.progress + request_index * 2 + 1, volatile=True)
    return known + row > call.variant.num_drafts + 1


@triton.jit
def publish(call, request, row, kind, token):
    """Tell the other programs a row's verdict, and what it draws if the draft ends there."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    slot = request.index * (NUM_DRAFTS + 1) + row
    tl.store(call.scratch.tokens + slot, token)
    if call.scratch.residual is not None:
        tl.debug_barrier()
        tl.atomic_xchg(call.scratch.verdicts + slot, kind + 1)
    else:
        tl.store(call.scratch.verdicts + slot, kind + 1)
    if NUM_DRAFTS > 0:
        if kind != GOES_ON:
            first = call.scratch.progress + request.index * 2 + 1
            tl.atomic_max(first, -row + (NUM_DRAFTS + 1), sem="relaxed")


@triton.jit
def first_halt(call, request_index):
    """The first row known to end the draft, why it does, and the first row without verdict."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    words = call.scratch.verdicts + request_index * (NUM_DRAFTS + 1) + row
    kind = tl.load(words, mask=row <= NUM_DRAFTS, other=GOES_ON + 1, volatile=True) - 1
    halt = tl.min(tl.where((kind >= 0) & (kind != GOES_ON), row, NOWHERE), 0)
    unknown = tl.min(tl.where(kind < 0, row, NOWHERE), 0)
    return halt, at_row(kind, row, halt), unknown


@triton.jit
def wait_for_halt(call, request_index):
    """The first row that ends the draft, and why, once that is certain.

    Rows are judged by programs that started before those that wait, so they never wait in vain.
    """
    halt, kind, unknown = first_halt(call, request_index)
    while halt > unknown:
        halt, kind, unknown = first_halt(call, request_index)
    # An acquire: what the judges wrote before they published is to be seen from here on.
    tl.atomic_add(call.scratch.progress + request_index * 2, 0)
    return halt, kind


@triton.jit
def reset(call, request_index):
    """Make what programs met at zero again, as the next call expects it."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    words = call.scratch.verdicts + request_index * (NUM_DRAFTS + 1) + row
    tl.store(words, 0, mask=row <= NUM_DRAFTS)
    tl.store(call.scratch.progress + request_index * 2 + tl.arange(0, 2), 0)
