"""Verdicts on rows: why they end a draft, if they do.

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
def reset(call, request_index):
    """Make what programs met at zero again, as the next call expects it."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    words = call.scratch.verdicts + request_index * (NUM_DRAFTS + 1) + row
    tl.store(words, 0, mask=row <= NUM_DRAFTS)
    tl.store(call.scratch.progress + request_index * 2 + tl.arange(0, 2), 0)
