"""Loads logits with bias, penalties and masks; nothing is ever written back."""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .adjust import NOWHERE, adjusted, biases_of, extra_tokens, next_flag, value_at
from .assembly import INTERPRETED, assembled, look_up
from .rows import request_slot

BLOCK = tl.constexpr(BLOCK_SIZE)
NEVER = tl.constexpr(float("-inf"))
LOG2_E = tl.constexpr(1.4426950408889634)
WIDEN = tl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xFFFF0000;")

WINDOW = tl.constexpr(32)
"""How many extra tokens are computed at once: one per lane, so that a warp sums in one step."""


@triton.jit
def target_row(call, row):
    """The address of a target's row."""
    return call.target.logits + (row.start + row.place) * call.target.row_stride


@triton.jit
def draft_row(call, row):
    """The address of a draft's row."""
    base = call.draft.logits + request_slot(call, row.request) * call.draft.slot_stride
    return base + row.place.to(tl.int64) * call.draft.row_stride


@triton.jit
def load_row(base, inverse_map, vocab_size, ids, wanted=True, AGAIN: tl.constexpr = False):
    """Logits of tokens of a row, in its dtype; -inf outside it."""
    inside = wanted & (ids < vocab_size)
    if inverse_map is None:
        # Little of a row is read again, so caches may evict it first.
        EVICTED: tl.constexpr = "" if AGAIN else "evict_first"
        logits = tl.load(base + ids, mask=inside, other=NEVER, eviction_policy=EVICTED)
    else:
        column = tl.load(inverse_map + ids, mask=inside, other=-1)
        logits = tl.load(base + column, mask=column >= 0, other=NEVER)
    return logits


@triton.jit
def widened(logits):
    """Logits as float32; two bfloat16 of a register take one instruction each, not three."""
    if logits.dtype == tl.bfloat16 and logits.numel > 1 and not INTERPRETED:
        wide = assembled(WIDEN, "=&r,=r,r", [logits], 2, PURE=True).to(tl.float32, bitcast=True)
    else:
        wide = logits.to(tl.float32)
    return wide


@triton.jit
def target_logits(call, row, ids):
    """Adjusted logits of a block, or of fewer tokens, of a target's row, [N].

    They are -inf outside the vocabulary.
    """
    bias = ids * 0.0
    if call.entries.bias_ids is not None and ids.shape[0] < BLOCK:
        bias = biases_of(call, row, ids)
    logits = adjusted(call, row, raw_logits(call, row, ids), ids, bias)
    if call.entries.bias_ids is not None and ids.shape[0] == BLOCK:
        block = tl.min(ids, 0) // BLOCK + tl.zeros([1], tl.int32)
        (logits,) = replaced(call, row, [logits], ids, block, True)
    if call.masks.words is not None:
        logits = masked(logits, is_allowed(call, row, ids))
    return logits


@triton.jit
def replaced(call, row, parts, ids, block, STREAMS: tl.constexpr):
    """Logits of blocks, in one part or in quarters, with those of biased and drafted tokens.

    `ids` are those of the first part. `STREAMS`: there is no other block between these.
    """
    tokens, _biases = extra_tokens(call, row, tl.arange(0, call.variant.extra_width))
    flags = _inside(tokens, block, STREAMS)
    first = next_flag(flags, -1)
    while first < NOWHERE:
        parts = _replaced_from(call, row, parts, ids, block, first, STREAMS)
        first = next_flag(flags, first + WINDOW - 1)
    return parts


@triton.jit
def _replaced_from(call, row, parts, ids, block, first, STREAMS: tl.constexpr):
    """Compute a window of extra tokens at once, then put one after the other into the parts."""
    place = tl.arange(0, WINDOW)
    tokens, biases = extra_tokens(call, row, first + place)
    inside = _inside(tokens, block, STREAMS)
    tokens = tl.where(inside, tokens, call.target.vocab_size)
    logits = adjusted(call, row, raw_logits(call, row, tokens), tokens, biases)
    bits = logits.to(tl.int32, bitcast=True)
    following = first * 0
    while following < NOWHERE:
        # A biased token that is a draft, too, comes twice, and with its bias last.
        distance = value_at(tokens, place, following) - ids
        logit = value_at(bits, place, following).to(tl.float32, bitcast=True)
        if len(parts) == 1:
            parts = [tl.where(distance == 0, logit, parts[0])]
        else:
            parts = [tl.where(distance == n * (BLOCK // 4), logit, parts[n]) for n in (0, 1, 2, 3)]
        following = next_flag(inside, following)
    return parts


@triton.jit
def _inside(tokens, block, STREAMS: tl.constexpr):
    """Whether tokens, which are -1 if none, are in blocks."""
    if STREAMS:
        inside = (tokens >= tl.min(block, 0) * BLOCK) & (tokens < (tl.max(block, 0) + 1) * BLOCK)
    else:
        inside = tl.max((tokens[:, None] // BLOCK == block[None, :]).to(tl.int32), 1) != 0
    return inside & (tokens >= 0)


@triton.jit
def raw_logits(call, row, ids):
    """Raw logits of tokens of a target's row, any shape; -inf outside the vocabulary."""
    base = target_row(call, row)
    return widened(load_row(base, call.target.inverse_map, call.target.vocab_size, ids))


@triton.jit
def is_allowed(call, row, ids):
    """Whether a target's row allows tokens, any shape; true outside the vocabulary."""
    inside = (ids < call.target.vocab_size) & (row.mask >= 0)
    byte = look_up(_mask_bytes_of(call, row), ids >> 3, inside, 255)
    return (byte >> (ids & 7)) & 1 != 0


@triton.jit
def group_mask(call, row, group):
    """Bytes of a row's mask by number, 8 tokens each; all bits are set if there is no mask."""
    inside = group * 8 < tl.where(row.mask >= 0, call.target.vocab_size, 0)
    return tl.load(_mask_bytes_of(call, row) + group, mask=inside, other=255).to(tl.int32)


@triton.jit
def _mask_bytes_of(call, row):
    words = call.masks.words + row.mask * call.masks.stride
    return words.to(tl.pointer_type(tl.uint8), bitcast=True)


@triton.jit
def seen_bytes_of(call, request):
    """The address of a request's bits of seen tokens, 8 tokens per byte."""
    return call.scratch.seen + request.to(tl.int64) * call.scratch.num_blocks * (BLOCK // 8)


@triton.jit
def group_seen(call, row, group):
    """Bytes of a row's bits of seen tokens by number; 0 where these do not matter."""
    inside = (group < call.scratch.num_blocks * (BLOCK // 8)) & row.adjusts
    return tl.load(seen_bytes_of(call, row.request) + group, mask=inside, other=0).to(tl.int32)


@triton.jit
def masked(logits, allowed):
    """Logits with -inf for forbidden tokens; NaN stays and +inf becomes NaN, to be found later."""
    # A predicated multiply-add; a sum with -inf alone becomes a select and an addition in LLVM.
    return tl.where(allowed, logits, 0.5 * logits + NEVER)


@triton.jit
def draft_logits(call, row, ids, wanted):
    """Draft logits of tokens by target id, any shape; -inf if the draft has no such token."""
    mapped: tl.constexpr = call.draft.inverse_map is not None
    vocab_size = call.target.vocab_size if mapped else call.draft.vocab_size
    base = draft_row(call, row)
    return widened(load_row(base, call.draft.inverse_map, vocab_size, ids, wanted, True))
