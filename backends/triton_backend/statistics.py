"""Stage 1: read every row once and keep, per block of 512 tokens, its maximum and its mass.

Whoever finishes a row last combines its blocks. Everything later stands on these numbers. This
module refuses to know about drafts and policies.
"""

import triton
import triton.language as tl

from .race import BLOCK, NEVER
from .recipe import LOG2_E, first_row, load_draft, load_target, request_slot, temperature_of

SPAN = tl.constexpr(128)
PARTS = tl.constexpr(4)


@triton.jit
def statistics_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    parts,
    tiles_per_part,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WITH_MASSES: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A program per part of a row; rows of a request: the target's, then the draft's.

    Neighbours read neighbouring memory.
    """
    slot = tl.program_id(0) // parts
    first_tile = tl.program_id(0) % parts * tiles_per_part
    request = slot // ROWS
    row = slot % ROWS
    num_tiles = tl.cdiv(scratch.num_blocks, TILE)
    out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
    start, num_rows = first_row(target, request)
    inverse = 1.0
    present = row < num_rows
    if row <= NUM_DRAFTS:
        inverse, _greedy = temperature_of(target_recipe, request)
    elif draft.logits is not None:
        inverse, one_hot = temperature_of(draft_recipe, request)
        present = (row - NUM_DRAFTS < num_rows) & (one_hot == 0)
    if present:
        for tile in range(first_tile, tl.minimum(first_tile + tiles_per_part, num_tiles)):
            block = tile * TILE + tl.arange(0, TILE)
            token_id = block_token_ids(block)
            if row <= NUM_DRAFTS:
                logits = load_target(
                    target, adjust, requests, request, start, row, token_id, NUM_DRAFTS
                )
                _store(out, scratch.num_blocks, block, logits, inverse, WITH_MASSES)
            elif draft.logits is not None:
                draft_slot = request_slot(requests, request)
                logits = load_draft(draft, draft_slot, row - NUM_DRAFTS - 1, token_id)
                _store(out, scratch.num_blocks, block, logits, inverse, WITH_MASSES)
        tl.debug_barrier()
        if tl.atomic_add(scratch.arrivals + slot, 1) == parts - 1:
            _summarise(out, scratch, slot, inverse, WITH_MASSES, WIDTH)
            tl.store(scratch.arrivals + slot, 0)


@triton.jit
def block_token_ids(block):
    """Token ids of blocks: [PARTS, blocks, SPAN].

    A span is what 16 lanes of 8 logits read at once. A few lanes own a whole block, so that little
    is left to be summed between lanes, and nothing between warps.
    """
    part = tl.arange(0, PARTS)[:, None, None] * SPAN
    return block[None, :, None] * BLOCK + part + tl.arange(0, SPAN)[None, None, :]


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
    """Largest logit and mass relative to it: [PARTS, blocks, SPAN] -> [blocks], [blocks].

    A NaN or +inf makes the mass NaN. Additions are paired in one fixed order, so the mass does not
    depend on the launch shape or on what else the kernel was compiled for.
    """
    largest = tl.max(tl.max(logits, 2), 0)
    reference = tl.where(largest == NEVER, 0.0, largest)
    # Scaled after the difference: a large logit times a large scale would overflow.
    scaled = (logits - reference[None, :, None]) * (inverse_temperature * LOG2_E)
    return largest, block_sum(tl.exp2(scaled))


@triton.jit
def block_sum(weights):
    """Sum of each block in one fixed order: [PARTS, blocks, SPAN] -> [blocks]."""
    for _ in tl.static_range(9):
        if weights.shape[2] > 1:
            weights = tl.sum(
                tl.reshape(weights, [weights.shape[0], weights.shape[1], weights.shape[2] // 2, 2]),
                3,
            )
    for _ in tl.static_range(9):
        if weights.shape[0] > 1:
            weights = tl.sum(
                tl.reshape(weights, [2, weights.shape[0] // 2, weights.shape[1], weights.shape[2]]),
                0,
            )
    return tl.sum(tl.sum(weights, 2), 0)


@triton.jit
def _summarise(out, scratch, slot, inverse, WITH_MASSES: tl.constexpr, WIDTH: tl.constexpr):
    block = tl.arange(0, WIDTH)
    inside = block < scratch.num_blocks
    largest = tl.load(out + block, mask=inside, other=NEVER)
    masses = tl.where(largest == NEVER, 0.0, 1.0)
    if WITH_MASSES:
        masses = tl.load(out + scratch.num_blocks + block, mask=inside, other=0.0)
    row_max, log_total = normalise(largest, masses, inverse)
    tl.store(scratch.summaries + slot.to(tl.int64) * 2, row_max)
    tl.store(scratch.summaries + slot.to(tl.int64) * 2 + 1, log_total)


@triton.jit
def normalise(largest, masses, inverse_temperature):
    """Of a row: its largest logit, and log of the sum of exp((logit - largest) / temperature).

    NaN, infinite and missing logits make the latter NaN or infinite.
    """
    row_max = tl.max(largest, 0)
    reference = tl.where(row_max == NEVER, 0.0, row_max)
    weights = masses * tl.exp((largest - reference) * inverse_temperature)
    # Rounded from double precision, the sum does not depend on its order.
    return row_max, tl.log(tl.sum(weights.to(tl.float64), 0).to(tl.float32))
