"""Rows that block statistics leave open, counted in rounds by all programs.

A round counts a row between two logits: in bins of neighbouring keys, and together what equals
either end or is above. Whoever is through with a row last finds its threshold or narrows the
bracket, and puts the row at the end of the queue. A program waits only for what others are counting
already, so it does not matter how many run at once. Sums are integers: no order matters.
"""

import triton
import triton.language as tl

from ..arguments import opened
from ..device import let_next_stage_start, wait_for_stage_before
from ..logits import NEVER, QUARTER, adjusted_quarters, quarters_sum, row_quarters
from ..queue import next_ticket, num_open_rows, queued_row
from ..random_bits import INTERPRETED
from ..records import (
    ABOVE_MASS,
    ABOVE_NUMBER,
    ARRIVALS,
    AT_HIGH,
    AT_LOW,
    BY_MASS,
    HIGH,
    IS_KNOWN,
    LOW,
    ROW_MAX,
    blocks_of,
    mass_words,
    number_words,
    tail_of,
)
from ..rows import open_row, row_inverse
from ..units import as_key, from_key, in_units
from .found import bin_counts, bin_masses, bin_shift, find_threshold

MOST_TILES = tl.constexpr(8)
"""Of a part; with 4 blocks of 16 bits, 32 KB: a few microseconds of a program."""


@triton.jit
def counts_kernel(call, TILE: tl.constexpr):
    """Any number of programs; TILE blocks are read at once."""
    opened(call, _count_rows, (TILE,))


@triton.jit
def _count_rows(call, TILE: tl.constexpr):
    let_next_stage_start(call.variant.overlaps)
    wait_for_stage_before(call.variant.overlaps)
    num_open = num_open_rows(call)
    if num_open > 0:
        tiles = tl.cdiv(call.scratch.num_blocks, TILE)
        parts = tl.minimum(tl.cdiv(tl.num_programs(0), num_open), tiles)
        tiles_per_part = tl.minimum(tl.cdiv(tiles, parts), MOST_TILES)
        parts = tl.cdiv(tiles, tiles_per_part)
        ticket = next_ticket(call)
        slot = queued_row(call, num_open, ticket // parts)
        while slot >= 0:
            row = open_row(call, slot)
            first = ticket % parts * tiles_per_part
            _count_part(call, row, first, tl.minimum(first + tiles_per_part, tiles), TILE)
            tl.debug_barrier()
            words = number_words(call, row)
            if tl.atomic_add(words + ARRIVALS, 1) == parts - 1:
                find_threshold(call, row)
            ticket = next_ticket(call)
            slot = queued_row(call, num_open, ticket // parts)


@triton.jit
def _count_part(call, row, first_tile, last_tile, TILE: tl.constexpr):
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    words = number_words(call, row)
    blocks = blocks_of(call, row.slot)
    row_max = tl.load(tail_of(call, blocks) + ROW_MAX, cache_modifier=".cg")
    low = tl.load(words + LOW, cache_modifier=".cg")
    high = tl.load(words + HIGH, cache_modifier=".cg")
    is_known = tl.load(words + IS_KNOWN, cache_modifier=".cg")
    shift = bin_shift(low, high)
    inverse = row_inverse(call, row)
    masses = bin_masses(call, row)
    numbers = bin_counts(call, row)
    numbered = tl.load(words + BY_MASS, cache_modifier=".cg") == 0
    low_logit = from_key(low, KEY_SHIFT)
    high_logit = from_key(high, KEY_SHIFT)
    ends = tl.zeros([TILE, QUARTER], tl.int32)
    above = tl.zeros([TILE, QUARTER], tl.int32)
    above_mass = tl.zeros([TILE], tl.int64)
    source = blocks_of(call, row.source)
    for tile in range(first_tile, last_tile):
        block = tile * TILE + tl.arange(0, TILE)
        inside = block < call.scratch.num_blocks
        largest = tl.load(source + block, mask=inside, other=NEVER)
        if tl.max(largest, 0) >= low_logit:
            quarters = adjusted_quarters(call, row, block, row_quarters(call, row, block))
            weights = _weights(quarters, row_max, inverse)
            for place in tl.static_range(4):
                logits = quarters[place]
                between = (logits > low_logit) & (logits < high_logit)
                ends += (logits == low_logit).to(tl.int32)
                ends += (logits == high_logit).to(tl.int32) << 16
                number = (as_key(logits, KEY_SHIFT) - (low + 1)).to(tl.uint32, bitcast=True)
                number = (number >> shift).to(tl.int32)
                mass = in_units(weights[place])
                _add(masses + number, mass, between, "u64")
                if call.variant.ranks:
                    above += (logits > high_logit).to(tl.int32)
                    _add(numbers + number, (number | -1) & 1, between & numbered, "u32")
            if is_known == 0:
                above_mass += in_units(quarters_sum(_above(quarters, weights, high_logit)))
    tl.atomic_add(words + AT_LOW, _sum(ends & 0xFFFF), sem="relaxed")
    tl.atomic_add(words + AT_HIGH, _sum(ends >> 16), sem="relaxed")
    if is_known == 0:
        tl.atomic_add(mass_words(call, row) + ABOVE_MASS, tl.sum(above_mass, 0), sem="relaxed")
        if call.variant.ranks:
            tl.atomic_add(words + ABOVE_NUMBER, _sum(above), sem="relaxed")


@triton.jit
def _add(place, value, wanted, TYPE: tl.constexpr):
    """Add to scattered numbers, elementwise.

    Triton would first spread what a thread has over all threads, through shared memory.
    """
    if INTERPRETED:
        tl.atomic_add(place, value, mask=wanted, sem="relaxed")
    else:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $3, 0; "
            "@p red.relaxed.gpu.global.add." + TYPE + " [$1], $2; mov.b32 $0, 0; }",
            "=r,l,l,r" if TYPE == "u64" else "=r,l,r,r",
            [place.to(tl.int64), value, wanted.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _weights(quarters, row_max, inverse):
    first, second, third, fourth = quarters
    return (
        tl.exp((first - row_max) * inverse),
        tl.exp((second - row_max) * inverse),
        tl.exp((third - row_max) * inverse),
        tl.exp((fourth - row_max) * inverse),
    )


@triton.jit
def _above(quarters, weights, logit):
    first, second, third, fourth = quarters
    return (
        tl.where(first > logit, weights[0], 0.0),
        tl.where(second > logit, weights[1], 0.0),
        tl.where(third > logit, weights[2], 0.0),
        tl.where(fourth > logit, weights[3], 0.0),
    )


@triton.jit
def _sum(values):
    return tl.sum(tl.sum(values, 1), 0)
