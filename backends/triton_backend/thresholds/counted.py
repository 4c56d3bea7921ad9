"""Rows that block statistics leave open, counted by many programs.

Logits inside a row's brackets are listed, all others only counted and weighed. Sums are integers,
so nothing depends on who came when.
"""

import triton
import triton.language as tl

from ..arguments import opened
from ..device import let_next_stage_start, wait_for_stage_before
from ..logits import NEVER, QUARTER, adjusted_quarters, row_quarters
from ..records import (
    BRACKETS,
    COUNTS,
    NUM_LISTED,
    ROW_MAX,
    WEIGHTS,
    blocks_of,
    kept_logits,
    open_slot,
    padded,
    tail_of,
)
from ..rows import open_row, row_inverse
from ..statistics import block_statistics
from ..units import LOWEST_FINITE, in_units

MOST_TILES = tl.constexpr(8)
"""Of a part: with 4 blocks of 16 bits, 32 KB, so that the second reading comes from a cache."""


@triton.jit
def counts_kernel(call, TILE: tl.constexpr):
    """Any number of programs; TILE blocks are read at once."""
    opened(call, _count_rows, (TILE,))


@triton.jit
def _count_rows(call, TILE: tl.constexpr):
    let_next_stage_start(call.variant.overlaps)
    wait_for_stage_before(call.variant.overlaps)
    num_open = tl.load(call.scratch.num_open)
    tiles = tl.cdiv(call.scratch.num_blocks, TILE)
    parts = tl.minimum(tl.cdiv(tl.num_programs(0), tl.maximum(num_open, 1)), tiles)
    tiles_per_part = tl.minimum(tl.cdiv(tiles, parts), MOST_TILES)
    parts = tl.cdiv(tiles, tiles_per_part)
    for item in range(tl.program_id(0), num_open * parts, tl.num_programs(0)):
        row = open_row(call, tl.load(open_slot(call, num_open * 0 + item // parts)))
        first = item % parts * tiles_per_part
        _count_part(call, row, first, tl.minimum(first + tiles_per_part, tiles), TILE)


@triton.jit
def _count_part(call, row, first_tile, last_tile, TILE: tl.constexpr):
    tail = tail_of(call, blocks_of(call, row.slot))
    RANKS: tl.constexpr = call.variant.ranks
    MASSES: tl.constexpr = call.variant.masses
    row_max = tl.load(tail + ROW_MAX)
    low_rank = tl.load(tail + BRACKETS)
    high_rank = tl.load(tail + BRACKETS + 1)
    low_mass = tl.load(tail + BRACKETS + 2)
    high_mass = tl.load(tail + BRACKETS + 3)
    low = tl.maximum(low_rank, low_mass)
    by_mass_alone = (low_rank == NEVER) & (high_rank == NEVER)
    inverse = row_inverse(call, row)
    # Nothing equals an end that there is not.
    rank_end = tl.where(low_rank > NEVER, low_rank, float("nan"))
    mass_end = tl.where(low_mass > NEVER, low_mass, float("nan"))
    reached = tl.zeros([TILE, QUARTER], tl.int32)
    rank_ends = tl.zeros([TILE, QUARTER], tl.int32)
    mass_ends = tl.zeros([TILE, QUARTER], tl.int32)
    above_rank = tl.zeros([TILE], tl.int64)
    above_mass = tl.zeros([TILE], tl.int64)
    out = blocks_of(call, row.slot) + padded(call.scratch.num_blocks)
    brackets = (low_rank, high_rank, low_mass, high_mass)
    listed = tl.zeros([TILE, QUARTER], tl.int32)
    for tile in range(first_tile, last_tile):
        block = tile * TILE + tl.arange(0, TILE)
        quarters = adjusted_quarters(call, row, block, row_quarters(call, row, block))
        for place in tl.static_range(4):
            logits = quarters[place]
            listed += _inside(logits, brackets)
            if RANKS:
                reached += (logits >= tl.maximum(low_rank, LOWEST_FINITE)).to(tl.int32)
                rank_ends += _ends(logits, rank_end, high_rank)
            if MASSES:
                mass_ends += _ends(logits, mass_end, high_mass)
        block_max, mass = block_statistics(kept_logits(quarters, low), inverse)
        units = in_units(mass * tl.exp((block_max - row_max) * inverse))
        above_mass += units
        if RANKS and MASSES:
            block_max, rank_mass = block_statistics(kept_logits(quarters, low_rank), inverse)
            units = in_units(rank_mass * tl.exp((block_max - row_max) * inverse))
        above_rank += units
        inside = block < call.scratch.num_blocks
        tl.store(out + block, mass, mask=inside & (row.slot == row.source))
    _list(call, row, tail, listed, brackets, first_tile, last_tile, TILE)
    weights = (tail + WEIGHTS).to(tl.pointer_type(tl.int64), bitcast=True)
    numbers = (tail + COUNTS).to(tl.pointer_type(tl.int32), bitcast=True)
    if RANKS:
        # The whole of a row that top-p alone cuts is known, and stands there.
        tl.atomic_add(weights, tl.where(by_mass_alone, 0, tl.sum(above_rank, 0)), sem="relaxed")
        tl.atomic_add(numbers, _sum(reached), sem="relaxed")
        tl.atomic_add(numbers + 1, _sum(rank_ends & 0xFFFF), sem="relaxed")
        tl.atomic_add(numbers + 2, _sum(rank_ends >> 16), sem="relaxed")
    if MASSES:
        tl.atomic_add(weights + 1, tl.sum(above_mass, 0), sem="relaxed")
        tl.atomic_add(numbers + 3, _sum(mass_ends & 0xFFFF), sem="relaxed")
        tl.atomic_add(numbers + 4, _sum(mass_ends >> 16), sem="relaxed")


@triton.jit
def _ends(logits, low, high):
    """1 in the lower or upper half of a word where a logit is one end of a bracket."""
    return (logits == low).to(tl.int32) + ((logits == high).to(tl.int32) << 16)


@triton.jit
def _sum(values):
    return tl.sum(tl.sum(values, 1), 0)


@triton.jit
def _list(call, row, tail, listed, brackets, first_tile, last_tile, TILE: tl.constexpr):
    """Append a part's logits inside a bracket to the row's list, in any order.

    `listed` is how many there are at each place of all tiles, which are read once more.
    """
    counts = tl.reshape(listed, [TILE * QUARTER])
    number = tl.sum(counts, 0)
    if number > 0:
        length = (tail + NUM_LISTED).to(tl.pointer_type(tl.int32), bitcast=True)
        begin = tl.atomic_add(length, number, sem="relaxed")
        place = begin + tl.reshape(tl.cumsum(counts, 0) - counts, [TILE, QUARTER])
        out = call.scratch.listed + row.slot * call.variant.capacity
        for tile in range(first_tile, last_tile):
            block = tile * TILE + tl.arange(0, TILE)
            quarters = adjusted_quarters(call, row, block, row_quarters(call, row, block))
            for quarter in tl.static_range(4):
                wanted = _inside(quarters[quarter], brackets)
                mask = (wanted > 0) & (place < call.variant.capacity)
                tl.store(out + place, quarters[quarter], mask=mask)
                place += wanted


@triton.jit
def _inside(logits, brackets):
    low_rank, high_rank, low_mass, high_mass = brackets
    inside = (logits > low_rank) & (logits < high_rank)
    return (inside | ((logits > low_mass) & (logits < high_mass))).to(tl.int32)
