"""Stage 1: read every row once and keep, per block of 512 tokens, its maximum and its mass.

Everything later stands on these two numbers. This module refuses to combine blocks.
"""

import triton
import triton.language as tl

from .race import BLOCK
from .recipe import (
    LOG2_E,
    first_row,
    load_draft,
    load_target,
    num_usable_drafts,
    request_slot,
    temperature_of,
)

HALF = tl.constexpr(256)


@triton.jit
def statistics_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WITH_MASSES: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program per (row, tile of TILE blocks); rows of a request: target's, then draft's."""
    slot = tl.program_id(0)
    request = slot // ROWS
    row = slot % ROWS
    block = tl.program_id(1) * TILE + tl.arange(0, TILE)
    start, num_rows = first_row(target, request)
    num_drafts, _flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
    out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
    if row <= NUM_DRAFTS:
        if (row <= num_drafts) & (row < num_rows):
            inverse, _greedy = temperature_of(target_recipe, request)
            ids = _token_ids(block)
            logits = load_target(
                target, adjust, requests, request, start, row, ids, NUM_DRAFTS
            )
            _store(out, scratch.num_blocks, block, logits, inverse, WITH_MASSES)
    elif draft.logits is not None:
        inverse, one_hot = temperature_of(draft_recipe, request)
        draft_row = row - NUM_DRAFTS - 1
        if (draft_row < num_drafts) & (one_hot == 0):
            logits = load_draft(draft, request_slot(requests, request), draft_row, _token_ids(block))
            _store(out, scratch.num_blocks, block, logits, inverse, WITH_MASSES)


@triton.jit
def _token_ids(block):
    # Half a block is what 32 lanes of 8 logits read, so a warp owns whole blocks and sums them
    # without shared memory.
    half = tl.arange(0, 2)[:, None, None] * HALF
    return block[None, :, None] * BLOCK + half + tl.arange(0, HALF)[None, None, :]


@triton.jit
def _store(out, num_blocks, block, logits, inverse_temperature, WITH_MASSES: tl.constexpr):
    if WITH_MASSES:
        largest, mass = block_statistics(logits, inverse_temperature)
        tl.store(out + num_blocks + block, mass, mask=block < num_blocks)
    else:
        # NaN and +inf must not hide behind a maximum.
        finite = tl.where(logits < float("inf"), logits, float("inf"))
        largest = tl.max(tl.max(finite, 2), 0)
    tl.store(out + block, largest, mask=block < num_blocks)


@triton.jit
def block_statistics(logits, inverse_temperature):
    """Largest logit and mass relative to it: [2, blocks, HALF] -> [blocks], [blocks].

    A NaN or +inf makes the mass NaN. Additions are paired in one fixed order, so the mass does not
    depend on the launch shape or on what else the kernel was compiled for.
    """
    largest = tl.max(tl.max(logits, 2), 0)
    reference = tl.where(largest == float("-inf"), 0.0, largest)
    scaled = (logits - reference[None, :, None]) * (inverse_temperature * LOG2_E)
    weights = tl.exp2(scaled)
    for _ in tl.static_range(8):
        weights = tl.sum(tl.reshape(weights, [2, weights.shape[1], weights.shape[2] // 2, 2]), 3)
    return largest, tl.sum(tl.sum(weights, 2), 0)
