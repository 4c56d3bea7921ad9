"""Blocks of 512 logits, as four quarters.

Quarters are combined elementwise before lanes meet: little is left to be summed between lanes, and
nothing between warps. Additions are paired in one fixed order, so what they give depends neither on
the launch shape nor on the kernel.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .adjust import adjusted, changed
from .logits import (
    BLOCK,
    draft_row,
    group_mask,
    group_seen,
    is_allowed,
    is_seen,
    load_row,
    masked,
    target_row,
)

QUARTER = tl.constexpr(BLOCK_SIZE // 4)
"""What 16 lanes of 8 logits read at once."""


@triton.jit
def quarter_ids(block):
    """Token ids of the first quarter of each block: [blocks] -> [blocks, QUARTER]."""
    return block[:, None] * BLOCK + tl.arange(0, QUARTER)[None, :]


@triton.jit
def row_quarters(call, row, block):
    """Logits of blocks of a row as they came: four times [blocks, QUARTER] float32.

    A draft's row is taken by draft ids.
    """
    ids = quarter_ids(block)
    target = target_row(call, row)
    if call.draft.logits is None:
        first, second, third, fourth = _quarters(
            target, call.target.inverse_map, call.target.vocab_size, ids
        )
    else:
        draft = draft_row(call, row)
        if call.variant.same_dtype:
            base = target
            vocab_size = call.target.vocab_size
            if row.is_draft:
                base = draft
                vocab_size = call.draft.vocab_size
            first, second, third, fourth = _quarters(base, None, vocab_size, ids)
        elif row.is_draft:
            first, second, third, fourth = _quarters(draft, None, call.draft.vocab_size, ids)
        else:
            first, second, third, fourth = _quarters(target, None, call.target.vocab_size, ids)
    return first, second, third, fourth


@triton.jit
def law_quarters(call, row, block):
    """The same with bias, penalties and mask, where a program's threads hold eights of tokens."""
    marks = quarter_marks(call, row, block)
    return adjusted_quarters(call, row, block, row_quarters(call, row, block), marks)


@triton.jit
def target_quarters(call, row, block):
    """The same of few blocks of a target's row."""
    target = call.target
    quarters = _quarters(
        target_row(call, row), target.inverse_map, target.vocab_size, quarter_ids(block)
    )
    return few_quarters(call, row, block, quarters)


@triton.jit
def few_quarters(call, row, block, quarters):
    """The same from logits as they came: marks are looked up for each, whoever holds it."""
    ids = quarter_ids(block)
    within = changed(call, row, tl.min(block, 0) * BLOCK, (tl.max(block, 0) + 1) * BLOCK)
    first, second, third, fourth = quarters
    return (
        _few_quarter(call, row, first, ids, within),
        _few_quarter(call, row, second, ids + QUARTER, within),
        _few_quarter(call, row, third, ids + 2 * QUARTER, within),
        _few_quarter(call, row, fourth, ids + 3 * QUARTER, within),
    )


@triton.jit
def _few_quarter(call, row, logits, ids, within):
    if call.adjust.bias_ids is not None or call.adjust.repetition is not None:
        if row.is_draft == 0:
            flags = ids * 0
            if call.adjust.repetition is not None:
                flags = is_seen(call, row, ids)
            logits = adjusted(call, row, logits, ids, flags, within)
    if call.masks.words is not None:
        logits = masked(logits, is_allowed(call, row, ids))
    return logits


@triton.jit
def quarter_marks(call, row, block):
    """What was seen of blocks of a row, and what its mask allows, where somebody asks.

    A byte for 8 tokens: four times [blocks, QUARTER // 8] int32. To be loaded before the logits
    that it is for: behind them it would wait for them.
    """
    seen = (block, block, block, block)
    if call.adjust.repetition is not None:
        seen = _marks(call, row, block, group_seen)
    mask = seen
    if call.masks.words is not None:
        mask = _marks(call, row, block, group_mask)
    return seen, mask


@triton.jit
def _marks(call, row, block, LOAD: tl.constexpr):
    return (
        LOAD(call, row, _groups_of(block, 0)),
        LOAD(call, row, _groups_of(block, 1)),
        LOAD(call, row, _groups_of(block, 2)),
        LOAD(call, row, _groups_of(block, 3)),
    )


@triton.jit
def adjusted_quarters(call, row, block, quarters, marks):
    """The same with bias, penalties and mask, unless it is a draft's row."""
    first, second, third, fourth = quarters
    seen, mask = marks
    if call.adjust.bias_ids is not None or call.adjust.repetition is not None:
        if row.is_draft == 0:
            ids = quarter_ids(block)
            within = changed(call, row, tl.min(block, 0) * BLOCK, (tl.max(block, 0) + 1) * BLOCK)
            byte_0, byte_1, byte_2, byte_3 = seen
            first = _adjusted_quarter(call, row, first, ids, byte_0, within)
            second = _adjusted_quarter(call, row, second, ids + QUARTER, byte_1, within)
            third = _adjusted_quarter(call, row, third, ids + 2 * QUARTER, byte_2, within)
            fourth = _adjusted_quarter(call, row, fourth, ids + 3 * QUARTER, byte_3, within)
    if call.masks.words is not None:
        if row.mask >= 0:
            byte_0, byte_1, byte_2, byte_3 = mask
            first = masked(first, _bits_of(byte_0) != 0)
            second = masked(second, _bits_of(byte_1) != 0)
            third = masked(third, _bits_of(byte_2) != 0)
            fourth = masked(fourth, _bits_of(byte_3) != 0)
    return first, second, third, fourth


@triton.jit
def _adjusted_quarter(call, row, logits, ids, byte, within):
    seen_tokens = byte
    if call.adjust.repetition is not None:
        seen_tokens = _bits_of(byte)
    return adjusted(call, row, logits, ids, seen_tokens, within)


@triton.jit
def _quarters(base, inverse_map, vocab_size, ids):
    return (
        load_row(base, inverse_map, vocab_size, ids),
        load_row(base, inverse_map, vocab_size, ids + QUARTER),
        load_row(base, inverse_map, vocab_size, ids + 2 * QUARTER),
        load_row(base, inverse_map, vocab_size, ids + 3 * QUARTER),
    )


@triton.jit
def _groups_of(block, number):
    """The groups of 8 tokens in a quarter of each block: [blocks, QUARTER // 8]."""
    GROUPS: tl.constexpr = QUARTER // 8
    return block[:, None] * (BLOCK // 8) + number * GROUPS + tl.arange(0, GROUPS)[None, :]


@triton.jit
def _bits_of(byte):
    """A bit of each token: [blocks, QUARTER] int32."""
    bits = (byte[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1
    return tl.reshape(bits, [byte.shape[0], QUARTER])


@triton.jit
def as_one(quarters):
    """Quarters of blocks in one dimension, in any order: [blocks * BLOCK]."""
    first, second, third, fourth = quarters
    joined = tl.join(tl.join(first, second), tl.join(third, fourth))
    return tl.reshape(joined, [first.shape[0] * first.shape[1] * 4], can_reorder=True)


@triton.jit
def quarters_max(quarters):
    """Largest value of each block: [blocks]."""
    first, second, third, fourth = quarters
    return tl.max(tl.maximum(tl.maximum(first, second), tl.maximum(third, fourth)), 1)


@triton.jit
def quarters_sum(quarters):
    """Sum of each block: [blocks]."""
    first, second, third, fourth = quarters
    values = (first + second) + (third + fourth)
    for _ in tl.static_range(7):
        values = tl.sum(tl.reshape(values, [values.shape[0], values.shape[1] // 2, 2]), 2)
    return tl.reshape(values, [values.shape[0]])
