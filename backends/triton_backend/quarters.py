"""Blocks of 512 logits as four quarters, which are combined elementwise before lanes meet.

So little is left to be summed between lanes, and nothing between warps. Additions are paired in one
fixed order: what they give does not depend on the launch shape, nor on what else a kernel is
compiled for. This module refuses to know what is summed.
"""

import triton
import triton.language as tl

from .race import BLOCK
from .recipe import load_draft, load_draft_at, load_plain, load_target

QUARTER = tl.constexpr(BLOCK.value // 4)
"""What 16 lanes of 8 logits read at once."""


@triton.jit
def quarter_token_ids(block):
    """Token ids of the first quarter of each block: [blocks, QUARTER]."""
    return block[:, None] * BLOCK + tl.arange(0, QUARTER)[None, :]


@triton.jit
def target_quarters(target, adjust, requests, request, start, row, block, NUM_DRAFTS: tl.constexpr):
    """Adjusted logits of blocks of a row: four times [blocks, QUARTER] float32."""
    ids = quarter_token_ids(block)
    return (
        load_target(target, adjust, requests, request, start, row, ids, NUM_DRAFTS),
        load_target(target, adjust, requests, request, start, row, ids + QUARTER, NUM_DRAFTS),
        load_target(target, adjust, requests, request, start, row, ids + 2 * QUARTER, NUM_DRAFTS),
        load_target(target, adjust, requests, request, start, row, ids + 3 * QUARTER, NUM_DRAFTS),
    )


@triton.jit
def plain_quarters(base, vocab_size, block):
    """The same of a row that is taken as it is, target's or draft's."""
    ids = quarter_token_ids(block)
    return (
        load_plain(base, vocab_size, ids),
        load_plain(base, vocab_size, ids + QUARTER),
        load_plain(base, vocab_size, ids + 2 * QUARTER),
        load_plain(base, vocab_size, ids + 3 * QUARTER),
    )


@triton.jit
def draft_quarters(draft, slot, row, block):
    """The same of a draft row, by draft ids."""
    ids = quarter_token_ids(block)
    return (
        load_draft(draft, slot, row, ids),
        load_draft(draft, slot, row, ids + QUARTER),
        load_draft(draft, slot, row, ids + 2 * QUARTER),
        load_draft(draft, slot, row, ids + 3 * QUARTER),
    )


@triton.jit
def draft_quarters_at(draft, slot, row, block, vocab_size):
    """The same of a draft row, by target ids."""
    ids = quarter_token_ids(block)
    return (
        load_draft_at(draft, slot, row, ids, vocab_size),
        load_draft_at(draft, slot, row, ids + QUARTER, vocab_size),
        load_draft_at(draft, slot, row, ids + 2 * QUARTER, vocab_size),
        load_draft_at(draft, slot, row, ids + 3 * QUARTER, vocab_size),
    )


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
