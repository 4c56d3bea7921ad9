"""Logits as they are loaded, with bias, penalties and masks; nothing is ever written back.

Blocks of 512 logits come as four quarters, which are combined elementwise before lanes meet: little
is left to be summed between lanes, and nothing between warps. Additions are paired in one fixed
order, so what they give depends neither on the launch shape nor on the kernel.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .adjust import adjusted, changed, seen
from .rows import request_slot

BLOCK = tl.constexpr(BLOCK_SIZE)
NEVER = tl.constexpr(float("-inf"))
LOG2_E = tl.constexpr(1.4426950408889634)

QUARTER = tl.constexpr(BLOCK_SIZE // 4)
"""What 16 lanes of 8 logits read at once."""


@triton.jit
def quarter_ids(block):
    """Token ids of the first quarter of each block: [blocks] -> [blocks, QUARTER]."""
    return block[:, None] * BLOCK + tl.arange(0, QUARTER)[None, :]


@triton.jit
def _target_row(call, row):
    return call.target.logits + (row.start + row.place) * call.target.row_stride


@triton.jit
def _draft_row(call, row):
    base = call.draft.logits + request_slot(call, row.request) * call.draft.slot_stride
    return base + row.place.to(tl.int64) * call.draft.row_stride


@triton.jit
def row_quarters(call, row, block):
    """Logits of blocks of a row as they came: four times [blocks, QUARTER] float32.

    A draft's row is taken by draft ids.
    """
    ids = quarter_ids(block)
    target = _target_row(call, row)
    if call.draft.logits is None:
        first, second, third, fourth = _quarters(
            target, call.target.inverse_map, call.target.vocab_size, ids
        )
    else:
        draft = _draft_row(call, row)
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
def target_quarters(call, row, block):
    """Adjusted logits of blocks of a target's row: four times [blocks, QUARTER] float32."""
    ids = quarter_ids(block)
    base = _target_row(call, row)
    first, second, third, fourth = _quarters(
        base, call.target.inverse_map, call.target.vocab_size, ids
    )
    return adjusted_quarters(call, row, block, (first, second, third, fourth))


@triton.jit
def adjusted_quarters(call, row, block, quarters, IN_ORDER: tl.constexpr = False):
    """The same with bias, penalties and mask, unless it is a draft's row.

    IN_ORDER loads the mask with the logits, not behind them, where a loop has the registers.
    """
    first, second, third, fourth = quarters
    if call.adjust.bias_ids is not None or call.adjust.repetition is not None:
        seen_0 = _quarter_seen(call, row, block, 0)
        seen_1 = _quarter_seen(call, row, block, 1)
        seen_2 = _quarter_seen(call, row, block, 2)
        seen_3 = _quarter_seen(call, row, block, 3)
        if row.is_draft == 0:
            ids = quarter_ids(block)
            within = changed(call, row, tl.min(block, 0) * BLOCK, (tl.max(block, 0) + 1) * BLOCK)
            first = adjusted(call, row, first, ids, seen_0, within)
            second = adjusted(call, row, second, ids + QUARTER, seen_1, within)
            third = adjusted(call, row, third, ids + 2 * QUARTER, seen_2, within)
            fourth = adjusted(call, row, fourth, ids + 3 * QUARTER, seen_3, within)
    if call.masks.words is not None:
        allowed_0 = _quarter_allowed(call, row, block, 0, IN_ORDER)
        allowed_1 = _quarter_allowed(call, row, block, 1, IN_ORDER)
        allowed_2 = _quarter_allowed(call, row, block, 2, IN_ORDER)
        allowed_3 = _quarter_allowed(call, row, block, 3, IN_ORDER)
        if row.mask >= 0:
            first = _masked(first, allowed_0)
            second = _masked(second, allowed_1)
            third = _masked(third, allowed_2)
            fourth = _masked(fourth, allowed_3)
    return first, second, third, fourth


@triton.jit
def _quarters(base, inverse_map, vocab_size, ids):
    return (
        _load(base, inverse_map, vocab_size, ids),
        _load(base, inverse_map, vocab_size, ids + QUARTER),
        _load(base, inverse_map, vocab_size, ids + 2 * QUARTER),
        _load(base, inverse_map, vocab_size, ids + 3 * QUARTER),
    )


@triton.jit
def _load(base, inverse_map, vocab_size, ids):
    inside = ids < vocab_size
    if inverse_map is None:
        # Little of a row is read twice, so it may leave the caches first.
        logits = tl.load(
            base + ids, mask=inside, other=float("-inf"), eviction_policy="evict_first"
        )
    else:
        column = tl.load(inverse_map + ids, mask=inside, other=-1)
        logits = tl.load(base + column, mask=column >= 0, other=float("-inf"))
    return logits.to(tl.float32)


@triton.jit
def target_logits(call, row, ids):
    """Adjusted logits of tokens of a target's row, any shape; -inf outside the vocabulary."""
    base = _target_row(call, row)
    logits = _load(base, call.target.inverse_map, call.target.vocab_size, ids)
    if call.adjust.bias_ids is not None or call.adjust.repetition is not None:
        in_range = changed(call, row, 0, call.target.vocab_size)
        logits = adjusted(call, row, logits, ids, seen(call, row.request, ids), in_range)
    if call.masks.words is not None:
        logits = _masked(logits, is_allowed(call, row, ids))
    return logits


@triton.jit
def row_logits(call, row, ids):
    """Logits of tokens of a row, any shape: a target's as above, a draft's by draft ids."""
    if call.draft.logits is None:
        logits = target_logits(call, row, ids)
    elif row.is_draft:
        logits = _load(_draft_row(call, row), None, call.draft.vocab_size, ids)
    else:
        logits = target_logits(call, row, ids)
    return logits


@triton.jit
def raw_logits(call, row, ids):
    """The same as they came."""
    base = _target_row(call, row)
    return _load(base, call.target.inverse_map, call.target.vocab_size, ids)


@triton.jit
def _mask_bytes(call, row, number, inside, IN_ORDER: tl.constexpr):
    """Bytes of a row's mask, each of 8 tokens; all bits are set where nothing is said."""
    words = call.masks.words + row.mask * call.masks.stride
    place = words.to(tl.pointer_type(tl.uint8), bitcast=True) + number
    mask = inside & (row.mask >= 0)
    # The compiler would move other loads behind a branch that waits for the logits.
    return tl.load(place, mask=mask, other=255, volatile=IN_ORDER).to(tl.int32)


@triton.jit
def is_allowed(call, row, ids):
    """Whether a target's row allows tokens, any shape; so it is outside the vocabulary."""
    byte = _mask_bytes(call, row, ids >> 3, ids < call.target.vocab_size, False)
    return (byte >> (ids & 7)) & 1 != 0


@triton.jit
def _quarter_allowed(call, row, block, number, IN_ORDER: tl.constexpr):
    """The same of a quarter of each block, where every byte is loaded once: [blocks, QUARTER]."""
    group = _groups_of(block, number)
    byte = _mask_bytes(call, row, group, group * 8 < call.target.vocab_size, IN_ORDER)
    return _bits_of(byte) != 0


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
def seen_bytes_of(call, request):
    """Where the bytes of tokens that a request has seen are, each of 8 tokens."""
    return call.scratch.seen + request.to(tl.int64) * call.scratch.num_blocks * (BLOCK // 8)


@triton.jit
def _quarter_seen(call, row, block, number):
    """1 where a request has seen a token of a quarter of each block: [blocks, QUARTER] int32."""
    flags = tl.zeros([block.shape[0], QUARTER], tl.int32)
    if call.adjust.repetition is not None:
        group = _groups_of(block, number)
        place = seen_bytes_of(call, row.request) + group
        inside = (block[:, None] < call.scratch.num_blocks) & (row.is_draft == 0)
        flags = _bits_of(tl.load(place, mask=inside, other=0)).to(tl.int32)
    return flags


@triton.jit
def _masked(logits, allowed):
    """Logits of allowed tokens; NaN stays and +inf becomes NaN, to be found."""
    # A predicated multiply-add; LLVM makes a select and an addition of a sum with -inf alone.
    return tl.where(allowed, logits, 0.5 * logits + NEVER)


@triton.jit
def draft_logits(call, row, ids, wanted):
    """Draft logits of tokens by target id, any shape; -inf where the draft has no such token."""
    base = _draft_row(call, row)
    if call.draft.inverse_map is None:
        column = ids
        known = wanted & (ids < call.draft.vocab_size)
    else:
        inside = wanted & (ids < call.target.vocab_size)
        column = tl.load(call.draft.inverse_map + ids, mask=inside, other=-1)
        known = column >= 0
    return tl.load(base + column, mask=known, other=float("-inf")).to(tl.float32)


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
