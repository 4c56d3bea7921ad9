"""Logits as they are loaded, with bias, penalties and masks; nothing is ever written back.

Blocks of 512 logits come as four quarters, which are combined elementwise before lanes meet: little
is left to be summed between lanes, and nothing between warps. Additions are paired in one fixed
order, so what they give depends neither on the launch shape nor on the kernel.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .adjust import adjusted, changed, seen
from .random_bits import INTERPRETED
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
def law_quarters(call, row, block):
    """The same with bias, penalties and mask, where a program's threads hold eights of tokens."""
    marks = quarter_marks(call, row, block)
    return adjusted_quarters(call, row, block, row_quarters(call, row, block), marks)


@triton.jit
def target_quarters(call, row, block):
    """The same of a target's row, where threads hold fours of tokens: half a byte of marks."""
    ids = quarter_ids(block)
    half = block[:, None] * (BLOCK // 4) + tl.arange(0, QUARTER // 4)[None, :]
    within = changed(call, row, tl.min(block, 0) * BLOCK, (tl.max(block, 0) + 1) * BLOCK)
    return (
        _target_quarter(call, row, ids, half, within),
        _target_quarter(call, row, ids + QUARTER, half + QUARTER // 4, within),
        _target_quarter(call, row, ids + 2 * QUARTER, half + 2 * QUARTER // 4, within),
        _target_quarter(call, row, ids + 3 * QUARTER, half + 3 * QUARTER // 4, within),
    )


@triton.jit
def _target_quarter(call, row, ids, half, within):
    logits = raw_logits(call, row, ids)
    if call.adjust.bias_ids is not None or call.adjust.repetition is not None:
        flags = ids * 0
        if call.adjust.repetition is not None:
            flags = _bits_of_halves(_group_seen(call, row, half >> 1), half)
        logits = adjusted(call, row, logits, ids, flags, within)
    if call.masks.words is not None:
        logits = _masked(logits, _bits_of_halves(_group_mask(call, row, half >> 1), half) != 0)
    return logits


@triton.jit
def quarter_marks(call, row, block):
    """What was seen of blocks of a row, and what its mask allows, where somebody asks.

    A byte for 8 tokens: four times [blocks, QUARTER // 8] int32. To be loaded before the logits
    that it is for: behind them it would wait for them.
    """
    seen = (block, block, block, block)
    if call.adjust.repetition is not None:
        seen = (
            _group_seen(call, row, _groups_of(block, 0)),
            _group_seen(call, row, _groups_of(block, 1)),
            _group_seen(call, row, _groups_of(block, 2)),
            _group_seen(call, row, _groups_of(block, 3)),
        )
    mask = seen
    if call.masks.words is not None:
        mask = (
            _group_mask(call, row, _groups_of(block, 0)),
            _group_mask(call, row, _groups_of(block, 1)),
            _group_mask(call, row, _groups_of(block, 2)),
            _group_mask(call, row, _groups_of(block, 3)),
        )
    return seen, mask


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
            first = _masked(first, _bits_of(byte_0) != 0)
            second = _masked(second, _bits_of(byte_1) != 0)
            third = _masked(third, _bits_of(byte_2) != 0)
            fourth = _masked(fourth, _bits_of(byte_3) != 0)
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
    return widened(logits)


@triton.jit
def widened(logits):
    """Logits as float32; of two bfloat16 in a register each takes one instruction, not three."""
    if logits.dtype == tl.bfloat16 and logits.numel > 1 and not INTERPRETED:
        low_first = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xFFFF0000;",
            "=r,=r,r",
            [logits],
            dtype=tl.int32,
            is_pure=True,
            pack=2,
        )
        wide = low_first.to(tl.float32, bitcast=True)
    else:
        wide = logits.to(tl.float32)
    return wide


@triton.jit
def target_logits(call, row, ids, group=None):
    """Adjusted logits of tokens of a target's row, any shape; -inf outside the vocabulary.

    If ids come in groups of eight that share a byte of a mask, `group` says which: [N] for [8 N].
    """
    logits = raw_logits(call, row, ids)
    if call.adjust.bias_ids is not None or call.adjust.repetition is not None:
        in_range = changed(call, row, 0, call.target.vocab_size)
        logits = adjusted(call, row, logits, ids, seen(call, row.request, ids), in_range)
    if call.masks.words is not None:
        if group is None:
            allowed = is_allowed(call, row, ids)
        else:
            bits = _group_mask(call, row, group)[:, None] >> tl.arange(0, 8)[None, :]
            allowed = tl.reshape(bits & 1, ids.shape) != 0
        logits = _masked(logits, allowed)
    return logits


@triton.jit
def row_logits(call, row, ids, group):
    """Logits of groups of a row's tokens: a target's as above, a draft's by draft ids."""
    if call.draft.logits is None:
        logits = target_logits(call, row, ids, group)
    elif row.is_draft:
        logits = _load(_draft_row(call, row), None, call.draft.vocab_size, ids)
    else:
        logits = target_logits(call, row, ids, group)
    return logits


@triton.jit
def raw_logits(call, row, ids):
    """The same as they came."""
    base = _target_row(call, row)
    return _load(base, call.target.inverse_map, call.target.vocab_size, ids)


@triton.jit
def _mask_bytes(call, row, number, inside):
    """Bytes of a row's mask, each of 8 tokens; all bits are set where nothing is said."""
    words = call.masks.words + row.mask * call.masks.stride
    place = words.to(tl.pointer_type(tl.uint8), bitcast=True) + number
    mask = inside & (row.mask >= 0)
    return tl.load(place, mask=mask, other=255).to(tl.int32)


@triton.jit
def is_allowed(call, row, ids):
    """Whether a target's row allows tokens, any shape; so it is outside the vocabulary."""
    byte = _mask_bytes(call, row, ids >> 3, ids < call.target.vocab_size)
    return (byte >> (ids & 7)) & 1 != 0


@triton.jit
def _group_mask(call, row, group):
    return _mask_bytes(call, row, group, group * 8 < call.target.vocab_size)


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
def _bits_of_halves(byte, half):
    """The same of the halves of bytes that have these numbers."""
    bits = ((byte >> 4 * (half & 1))[:, :, None] >> tl.arange(0, 4)[None, None, :]) & 1
    return tl.reshape(bits, [byte.shape[0], QUARTER])


@triton.jit
def seen_bytes_of(call, request):
    """Where the bytes of tokens that a request has seen are, each of 8 tokens."""
    return call.scratch.seen + request.to(tl.int64) * call.scratch.num_blocks * (BLOCK // 8)


@triton.jit
def _group_seen(call, row, group):
    inside = (group < call.scratch.num_blocks * (BLOCK // 8)) & (row.is_draft == 0)
    return tl.load(seen_bytes_of(call, row.request) + group, mask=inside, other=0).to(tl.int32)


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
