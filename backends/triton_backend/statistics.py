"""Stage 1: read every row once and keep, per block of 512 tokens, its maximum and its mass.

Whoever finishes a row last combines its blocks, unless the draw can do without. Everything later
stands on these numbers. For
logprobs of raw logits the same reading keeps both numbers of the target's rows as they came, too.
This module refuses to know about drafts and policies.
"""

import triton
import triton.language as tl

from .overlap import let_next_stage_start
from .quarters import (
    draft_quarters,
    plain_quarters,
    quarters_max,
    quarters_sum,
    target_quarters,
)
from .race import NEVER
from .recipe import LOG2_E, first_row, request_slot, temperature_of
from .rivals import first_end, tell_rejection, tell_rivals

UNREAD = tl.constexpr(1 << 16)
"""What a program adds to a row's arrivals, beside one, that has not read its part."""


@triton.jit
def statistics_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    plain,
    raw,
    parts,
    tiles_per_part,
    stream,
    draft_index,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WITH_MASSES: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    PART_WIDTH: tl.constexpr,
    PLAIN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """A program per part of a row; rows of a request: the target's, then the draft's.

    Neighbours read neighbouring memory. `plain` are no adjustments; `raw` is where statistics of
    raw logits go, if it has any.
    """
    let_next_stage_start(OVERLAPS)
    first_tile = tl.program_id(0) % parts * tiles_per_part
    num_reqs = tl.num_programs(0) // (ROWS * parts)
    request = tl.program_id(0) // parts % num_reqs
    row = tl.program_id(0) // parts // num_reqs
    tested = row
    if draft.logits is not None:
        # A target's row, its draft's row, the target's next.
        tested = row // 2
        row = tested + row % 2 * (NUM_DRAFTS + 1)
    slot = request * ROWS + row
    num_tiles = tl.cdiv(scratch.num_blocks, TILE)
    last_tile = tl.minimum(first_tile + tiles_per_part, num_tiles)
    out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
    raw_slot = request.to(tl.int64) * (NUM_DRAFTS + 1) + row
    start, num_rows = first_row(target, request)
    inverse = 1.0
    present = row < num_rows
    greedy = row < 0
    if row <= NUM_DRAFTS:
        inverse, greedy = temperature_of(target_recipe, request)
    elif draft.logits is not None:
        inverse, one_hot = temperature_of(draft_recipe, request)
        present = (row - NUM_DRAFTS < num_rows) & (one_hot == 0)
    reached = True
    if scratch.rivals is not None:
        reached = first_end(scratch, request, tested, NUM_DRAFTS) == tested
    if present & reached:
        if PLAIN:
            base = target.logits + (start + row) * target.row_stride
            vocab_size = target.vocab_size
            if draft.logits is not None:
                if row > NUM_DRAFTS:
                    base = draft.logits + request_slot(requests, request) * draft.slot_stride
                    base += (row - NUM_DRAFTS - 1).to(tl.int64) * draft.row_stride
                    vocab_size = draft.vocab_size
            for tile in range(first_tile, last_tile):
                block = tile * TILE + tl.arange(0, TILE)
                quarters = plain_quarters(base, vocab_size, block)
                _store(out, scratch.num_blocks, block, quarters, inverse, WITH_MASSES)
            if scratch.rivals is not None and scratch.summaries is None:
                tl.debug_barrier()
                if row < NUM_DRAFTS:
                    tell_rivals(
                        base,
                        out,
                        scratch,
                        requests,
                        request,
                        row,
                        num_rows,
                        vocab_size,
                        inverse,
                        greedy,
                        first_tile * TILE,
                        tl.minimum(last_tile * TILE, scratch.num_blocks),
                        stream,
                        draft_index,
                        WITH_MASSES,
                        NUM_DRAFTS,
                        PART_WIDTH,
                    )
        else:
            for tile in range(first_tile, last_tile):
                block = tile * TILE + tl.arange(0, TILE)
                if row <= NUM_DRAFTS:
                    quarters = target_quarters(
                        target, adjust, requests, request, start, row, block, NUM_DRAFTS
                    )
                    _store(out, scratch.num_blocks, block, quarters, inverse, WITH_MASSES)
                    if raw.statistics is not None:
                        if adjust.bias_ids is not None or adjust.prompt_mask is not None:
                            quarters = target_quarters(
                                target, plain, requests, request, start, row, block, NUM_DRAFTS
                            )
                        raw_out = raw.statistics + raw_slot * 2 * raw.num_blocks
                        _store(raw_out, raw.num_blocks, block, quarters, 1.0, True)
                elif draft.logits is not None:
                    draft_slot = request_slot(requests, request)
                    quarters = draft_quarters(draft, draft_slot, row - NUM_DRAFTS - 1, block)
                    _store(out, scratch.num_blocks, block, quarters, inverse, WITH_MASSES)
    if scratch.summaries is not None:
        if present:
            tl.debug_barrier()
            # Others of this row may know of an end that this program came too early for.
            arrived = tl.atomic_add(scratch.arrivals + slot, tl.where(reached, 1, 1 + UNREAD))
            if arrived % UNREAD == parts - 1:
                tl.store(scratch.arrivals + slot, 0)
                if reached & (arrived < UNREAD):
                    _summarise(out, scratch, slot, inverse, WITH_MASSES, WIDTH)
                    if raw.statistics is not None:
                        if row <= NUM_DRAFTS:
                            raw_out = raw.statistics + raw_slot * 2 * raw.num_blocks
                            _summarise(raw_out, raw, raw_slot, 1.0, True, WIDTH)
                    if scratch.rivals is not None:
                        if tested < NUM_DRAFTS:
                            tl.debug_barrier()
                            tell_rejection(
                                target,
                                draft,
                                requests,
                                target_recipe,
                                draft_recipe,
                                scratch,
                                request,
                                start,
                                tested,
                                num_rows,
                                NUM_DRAFTS,
                                ROWS,
                            )


@triton.jit
def _store(out, num_blocks, block, quarters, inverse_temperature, WITH_MASSES: tl.constexpr):
    if WITH_MASSES:
        largest, mass = block_statistics(quarters, inverse_temperature)
        tl.store(out + num_blocks + block, mass, mask=block < num_blocks)
    else:
        first, second, third, fourth = quarters
        finite = _nan_as_inf(first), _nan_as_inf(second), _nan_as_inf(third), _nan_as_inf(fourth)
        largest = quarters_max(finite)
    tl.store(out + block, largest, mask=block < num_blocks)


@triton.jit
def _nan_as_inf(logits):
    # NaN must not hide behind a maximum.
    return tl.where(logits < float("inf"), logits, float("inf"))


@triton.jit
def block_statistics(quarters, inverse_temperature):
    """Largest logit of each block and mass relative to it, see `quarters`: [blocks], [blocks].

    A NaN or +inf makes the mass NaN.
    """
    largest = quarters_max(quarters)
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    scale = inverse_temperature * LOG2_E
    first, second, third, fourth = quarters
    # Scaled after the difference: a large logit times a large scale would overflow.
    weights = (
        tl.exp2((first - reference) * scale),
        tl.exp2((second - reference) * scale),
        tl.exp2((third - reference) * scale),
        tl.exp2((fourth - reference) * scale),
    )
    return largest, quarters_sum(weights)


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
