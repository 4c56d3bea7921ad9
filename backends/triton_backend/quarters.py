"""Blocks of 512 logits, as four quarters.

Quarters are combined elementwise first: little is left to sum between lanes, and nothing between
warps. Additions have one fixed order, so results depend neither on the launch shape nor on the
kernel.
"""

import triton
import triton.language as tl

from .adjust import penalized
from .logits import (
    BLOCK,
    LOG2_E,
    NEVER,
    draft_row,
    group_mask,
    group_seen,
    load_row,
    masked,
    replaced,
    target_row,
    widened,
)
from .realigned import BEHIND, realigned

QUARTER = tl.constexpr(BLOCK.value // 4)
"""The logits that 16 lanes read at once, 8 each."""

TILE = tl.constexpr(4)
"""Blocks that are read at once: two warps with 16-byte loads, four in flight per thread."""


@triton.jit
def quarter_ids(block):
    """Token ids of the first quarter of each block: [blocks] -> [blocks, QUARTER]."""
    return block[:, None] * BLOCK + tl.arange(0, QUARTER)[None, :]


@triton.jit
def row_quarters(call, row, block, STREAMS: tl.constexpr = True):
    """Raw logits of blocks of a row: four times [blocks, QUARTER].

    Float32 if target and draft have different dtypes. A draft's row is read by draft ids.
    `STREAMS`: blocks are neighbours, and threads hold 8 logits of a quarter each: rows may begin
    anywhere.
    """
    base = target_row(call, row)
    vocab_size = row.place * 0 + call.target.vocab_size
    if call.draft.logits is None:
        quarters = _quarters(call, base, vocab_size, block, STREAMS)
    elif call.draft.logits.dtype == call.target.logits.dtype:
        if row.is_draft:
            base = draft_row(call, row)
            vocab_size = row.place * 0 + call.draft.vocab_size
        quarters = _quarters(call, base, vocab_size, block, STREAMS)
    elif row.is_draft:
        drafts = draft_row(call, row)
        quarters = wide(_quarters(call, drafts, call.draft.vocab_size, block, STREAMS))
    else:
        quarters = wide(_quarters(call, base, vocab_size, block, STREAMS))
    return quarters


@triton.jit
def law_quarters(call, row, block):
    """Logits with bias, penalties and mask."""
    marks = quarter_marks(call, row, block)
    return adjusted_quarters(call, row, block, row_quarters(call, row, block, False), marks, False)


@triton.jit
def quarter_marks(call, row, block):
    """Which tokens of blocks were seen, and which the row's mask allows, if needed.

    One byte for 8 tokens: four times [blocks, QUARTER // 8] int32. Load these before the logits:
    later loads would wait for the logits.
    """
    seen = [block, block, block, block]
    mask = seen
    if call.entries.repetition is not None:
        seen = [group_seen(call, row, _groups_of(block, n)) for n in (0, 1, 2, 3)]
    if call.masks.words is not None:
        mask = [group_mask(call, row, _groups_of(block, n)) for n in (0, 1, 2, 3)]
    return seen, mask


@triton.jit
def adjusted_quarters(call, row, block, quarters, marks, STREAMS: tl.constexpr = True):
    """Logits with mask and, where they apply, bias and penalties: float32."""
    seen, mask = marks
    quarters = wide(quarters)
    if (call.entries.bias_ids is not None or call.entries.repetition is not None) and row.adjusts:
        ids = quarter_ids(block)
        if call.entries.repetition is not None:
            groups = [_spread(_groups_of(block, n)) for n in (0, 1, 2, 3)]
            quarters = [
                penalized(call, row, quarters[n], ids + n * QUARTER, groups[n], _spread(seen[n]))
                for n in (0, 1, 2, 3)
            ]
        quarters = replaced(call, row, quarters, ids, block, STREAMS)
    if call.masks.words is not None and row.mask >= 0:
        bit = 1 << quarter_ids(block) % 8
        quarters = [masked(quarters[n], _spread(mask[n]) & bit != 0) for n in (0, 1, 2, 3)]
    return quarters


@triton.jit
def _quarters(call, base, vocab_size, block, STREAMS: tl.constexpr):
    HALF: tl.constexpr = base.dtype.element_ty.primitive_bitwidth == 16
    inverse_map = call.target.inverse_map
    REALIGNS: tl.constexpr = call.variant.realigns and HALF and STREAMS and inverse_map is None
    # What is behind the row may not be ours to read.
    if not REALIGNS or (tl.max(block, 0) + 1) * BLOCK + BEHIND > vocab_size:
        ids = quarter_ids(block)
        quarters = [
            load_row(base, inverse_map, vocab_size, ids + n * QUARTER) for n in (0, 1, 2, 3)
        ]
    else:
        pair = block[:, None] * (BLOCK // 2) + tl.arange(0, QUARTER // 2)[None, :]
        quarters = [realigned(base, pair + n * (QUARTER // 2)) for n in (0, 1, 2, 3)]
    return quarters


@triton.jit
def wide(quarters):
    """Quarters as float32."""
    return [widened(logits) for logits in quarters]


@triton.jit
def _groups_of(block, number):
    """The groups of 8 tokens in a quarter of each block: [blocks, QUARTER // 8]."""
    GROUPS: tl.constexpr = QUARTER // 8
    return block[:, None] * (BLOCK // 8) + number * GROUPS + tl.arange(0, GROUPS)[None, :]


@triton.jit
def _spread(byte):
    """A byte's number for each of its 8 tokens: [blocks, QUARTER] int32."""
    spread = tl.broadcast_to(byte[:, :, None], [byte.shape[0], byte.shape[1], 8])
    return tl.reshape(spread, [byte.shape[0], QUARTER])


@triton.jit
def as_one(quarters):
    """Quarters of blocks in one dimension, in any order: [blocks * BLOCK]."""
    first, second, third, fourth = quarters
    joined = tl.join(tl.join(first, second), tl.join(third, fourth))
    return tl.reshape(joined, [first.shape[0] * first.shape[1] * 4], can_reorder=True)


@triton.jit
def quarters_max(quarters):
    """The largest value of each block: [blocks]."""
    first, second, third, fourth = quarters
    return tl.max(tl.maximum(tl.maximum(first, second), tl.maximum(third, fourth)), 1)


@triton.jit
def quarters_sum(quarters):
    """The sum of each block: [blocks]."""
    first, second, third, fourth = quarters
    values = (first + second) + (third + fourth)
    for _ in tl.static_range(7):
        values = tl.sum(tl.reshape(values, [values.shape[0], values.shape[1] // 2, 2]), 2)
    return tl.reshape(values, [values.shape[0]])


@triton.jit
def block_statistics(quarters, inverse):
    """The largest logit of each block, and the mass relative to it: [blocks] each.

    A NaN or +inf makes the mass NaN.
    """
    largest = quarters_max(quarters)
    return largest, block_masses(quarters, largest, inverse)


@triton.jit
def block_masses(quarters, largest, inverse):
    """The mass of each block relative to its largest logit: [blocks]."""
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    scale = inverse * LOG2_E
    # Subtract before scaling: a large logit times a large scale would overflow.
    weights = [tl.exp2((logits - reference) * scale) for logits in quarters]
    return quarters_sum(weights)
