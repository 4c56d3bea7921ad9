"""Verdicts on rows: whether a row ends the draft, and why."""

import triton
import triton.language as tl

from .adjust import NOWHERE

REJECTED = tl.constexpr(0)
BONUS = tl.constexpr(1)
STOP_TARGET = tl.constexpr(2)
STOP_DRAFT = tl.constexpr(3)
GOES_ON = tl.constexpr(4)
STOP_MASK = tl.constexpr(5)


@triton.jit
def at_row(values, row, chosen):
    """The value at one row; other rows may hold anything."""
    return tl.sum(tl.where(row == chosen, values, 0), 0)


@triton.jit
def verdict_of(place, num_drafts, target_usable, draft_usable, accepted):
    """Why a row ends the draft; GOES_ON if it does not."""
    kind = tl.where(accepted, GOES_ON, REJECTED)
    kind = tl.where(draft_usable, kind, STOP_DRAFT)
    kind = tl.where(place >= num_drafts, BONUS, kind)
    return tl.where(target_usable, kind, STOP_TARGET)


@triton.jit
def first_halt(row, kinds):
    """The first row that ends the draft, and why."""
    halt = tl.min(tl.where(kinds != GOES_ON, row, NOWHERE), 0)
    return halt, at_row(kinds, row, halt)
