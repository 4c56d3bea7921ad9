"""Reading rows once: each program leaves the block statistics of a part of a row.

This module refuses to judge what it reads.
"""

import triton
import triton.language as tl

from .recipe import load_draft, load_target, request_slot
from .request import open_request
from .row_draw import block_values
from .statistics import SPAN, normalise, quarter_token_ids, quarters_mass, quarters_max


@triton.jit
def load_row(call, request, row, token_id, IS_DRAFT: tl.constexpr):
    """Logits of a target row by token id, or of a draft row by draft id."""
    if IS_DRAFT:
        draft_slot = request_slot(call.requests, request.index)
        logits = load_draft(call.draft, draft_slot, row, token_id)
    else:
        logits = load_target(
            call.target,
            call.adjust,
            call.requests,
            request.index,
            request.start,
            row,
            token_id,
            call.variant.num_drafts,
        )
    return logits


@triton.jit
def read_part(call, request, row, part, tiles_per_part, IS_DRAFT: tl.constexpr):
    """Leave the block statistics of a part of a row."""
    slot = request.index.to(tl.int64) * call.variant.num_rows + row
    inverse = request.inverse
    if IS_DRAFT:
        slot += call.variant.num_drafts + 1
        inverse = request.draft_inverse
    num_blocks = call.scratch.num_blocks
    first = part * tiles_per_part
    last = tl.minimum(first + tiles_per_part, tl.cdiv(num_blocks, call.variant.tile))
    for tile in range(first, last):
        block = tile * call.variant.tile + tl.arange(0, call.variant.tile)
        token_id = quarter_token_ids(block)
        quarter_0 = load_row(call, request, row, token_id, IS_DRAFT)
        quarter_1 = load_row(call, request, row, token_id + SPAN, IS_DRAFT)
        quarter_2 = load_row(call, request, row, token_id + 2 * SPAN, IS_DRAFT)
        quarter_3 = load_row(call, request, row, token_id + 3 * SPAN, IS_DRAFT)
        out = call.scratch.statistics + slot * 2 * num_blocks + block
        inside = block < num_blocks
        if call.variant.with_masses:
            largest = quarters_max(quarter_0, quarter_1, quarter_2, quarter_3)
            mass = quarters_mass(quarter_0, quarter_1, quarter_2, quarter_3, largest, inverse)
            tl.store(out + num_blocks, mass, mask=inside)
        else:
            largest = quarters_max(
                nan_as_inf(quarter_0),
                nan_as_inf(quarter_1),
                nan_as_inf(quarter_2),
                nan_as_inf(quarter_3),
            )
        tl.store(out, largest, mask=inside)


@triton.jit
def nan_as_inf(logits):
    """Logits whose NaN cannot hide behind a maximum."""
    return tl.where(logits < float("inf"), logits, float("inf"))


@triton.jit
def statistics_kernel(call, parts, tiles_per_part):
    """Block statistics and summaries of all rows; nothing is judged.

    A program per part of a row; rows of a request: the target's, then the draft's.
    """
    ROWS: tl.constexpr = call.variant.num_rows
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    slot = tl.program_id(0) // parts
    part = tl.program_id(0) % parts
    request = open_request(call, slot // ROWS)
    row = slot % ROWS
    inverse = request.inverse
    present = row < request.num_rows
    if row <= NUM_DRAFTS:
        if present:
            read_part(call, request, row, part, tiles_per_part, False)
    elif call.draft.logits is not None:
        present = (row - NUM_DRAFTS < request.num_rows) & request.dense
        inverse = request.draft_inverse
        if present:
            read_part(call, request, row - NUM_DRAFTS - 1, part, tiles_per_part, True)
    if present:
        tl.debug_barrier()
        if tl.atomic_add(call.scratch.arrivals + slot, 1) == parts - 1:
            largest, masses = block_values(call, slot.to(tl.int64))
            row_max, log_total = normalise(largest, masses, inverse)
            tl.store(call.scratch.summaries + slot.to(tl.int64) * 2, row_max)
            tl.store(call.scratch.summaries + slot.to(tl.int64) * 2 + 1, log_total)
            tl.store(call.scratch.arrivals + slot, 0)
