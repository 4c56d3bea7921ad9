"""Stage 1: reads every row once and keeps the maximum and the mass of each block of 512 tokens.

All later stages use these numbers. For logprobs of raw logits, both numbers are kept of the
target's raw rows, too. If some request has penalties, a kernel first stores one bit per token,
whether the request has seen it. Counts are 40 times as large, and every row would read them in
every stage.
"""

import triton
import triton.language as tl

from .adjust import seen
from .assembly import store_here
from .device import wait_for_stage_before
from .logits import BLOCK, seen_bytes_of
from .quarters import TILE, adjusted_quarters, block_statistics, quarter_marks, row_quarters, wide
from .records import blocks_of, padded, record_words
from .rows import open_row, row_recipe


@triton.jit
def seen_stage(call, num_parts, tiles_per_part):
    """A program per part of a request's tokens."""
    request = tl.program_id(0) // num_parts
    first = tl.program_id(0) % num_parts * tiles_per_part
    last = tl.minimum(first + tiles_per_part, tl.cdiv(call.scratch.num_blocks, TILE))
    for tile in range(first, last):
        group = tile * (TILE * BLOCK // 8) + tl.arange(0, TILE * BLOCK // 8)
        bit = tl.arange(0, 8)[None, :]
        ids = group[:, None] * 8 + bit
        flags = seen(call, request, ids)
        byte = tl.sum(flags << bit, 1)
        inside = group < call.scratch.num_blocks * (BLOCK // 8)
        tl.store(seen_bytes_of(call, request) + group, byte.to(tl.uint8), mask=inside)


@triton.jit
def statistics_stage(call, num_parts, tiles_per_part):
    """A program per part of a row; neighbouring programs read the same part of a request's rows."""
    SECOND: tl.constexpr = call.variant.num_drafts if call.variant.policy == "relaxed" else 0
    READ: tl.constexpr = call.variant.num_rows - SECOND
    part = tl.program_id(0) // READ % num_parts
    request = tl.program_id(0) // (READ * num_parts)
    row = open_row(call, request * call.variant.num_rows + tl.program_id(0) % READ)
    if call.entries.repetition is not None:
        wait_for_stage_before(call)
    if row.exists:
        inverse = row_recipe(call, row).inverse
        blocks = blocks_of(call, row.slot)
        first = part * tiles_per_part
        last = tl.minimum(first + tiles_per_part, tl.cdiv(call.scratch.num_blocks, TILE))
        for tile in range(first, last):
            block = tile * TILE + tl.arange(0, TILE)
            marks = quarter_marks(call, row, block)
            quarters = row_quarters(call, row, block)
            if call.scratch.raw is not None and row.is_draft == 0:
                place = row.request.to(tl.int64) * (call.variant.num_drafts + 1) + row.place
                raw = call.scratch.raw + place * record_words(call)
                _store(call, raw, block, wide(quarters), 1.0)
            quarters = adjusted_quarters(call, row, block, quarters, marks)
            _store(call, blocks, block, quarters, inverse)


@triton.jit
def _store(call, blocks, block, quarters, inverse):
    largest, mass = block_statistics(quarters, inverse)
    inside = block < call.scratch.num_blocks
    store_here(blocks + block, largest, inside)
    store_here(blocks + padded(call.scratch.num_blocks) + block, mass, inside)
