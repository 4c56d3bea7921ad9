"""Rows that block statistics leave open, counted in rounds by all programs.

A round counts a row between two logits: in bins of neighbouring logits, and together what equals
either end or is above. Whoever is through with a row last finds its threshold or narrows the
bracket, and puts the row at the end of the queue. A program waits only for what others are counting
already, so it does not matter how many run at once. Sums are integers: no order matters.
"""

import triton
import triton.language as tl

from ..arguments import opened
from ..device import let_next_stage_start, wait_for_stage_before
from ..logits import LOG2_E, NEVER
from ..quarters import QUARTER, law_quarters, quarters_sum
from ..queue import next_ticket, num_open_rows, queued_row
from ..random_bits import INTERPRETED
from ..records import (
    ABOVE_NUMBER,
    ARRIVALS,
    AT_HIGH,
    AT_LOW,
    BY_MASS,
    HIGH,
    LOW,
    MASS,
    ROW_MAX,
    blocks_of,
    mass_words,
    number_words,
    padded,
    tail_of,
)
from ..rows import open_row, row_inverse
from ..units import from_key, in_units
from .found import BINS, bin_counts, bin_map, bin_masses, bin_of, find_threshold

MOST_TILES = tl.constexpr(16)
"""Of a part; with 4 blocks of 16 bits, 64 KB: some ten microseconds of a program."""

FIELD = tl.constexpr(10)
"""Bits of each number in a tally: of four quarters a tile, what is above, at `high`, at `low`."""
FIELD_MASK = tl.constexpr((1 << FIELD.value) - 1)

COUNT = tl.constexpr(f"""{{
    .reg .pred is; .reg .f32 x; .reg .u32 bin; .reg .u64 place, units;
    mov.b32 $1, 0;
    setp.ge.f32 is, $3, $4;
    @!is bra done;
    sub.f32 $1, $3, $6;
    mul.f32 $1, $1, $7;
    ex2.approx.ftz.f32 $1, $1;
    setp.gt.f32 is, $3, $5;
    @is add.u32 $0, $0, {1 << 2 * FIELD.value};
    setp.eq.f32 is, $3, $5;
    @is add.u32 $0, $0, {1 << FIELD.value};
    setp.eq.f32 is, $3, $4;
    @is add.u32 $0, $0, 1;
    setp.lt.and.f32 is, $3, $5, !is;
    @!is bra done;
    fma.rn.f32 x, $3, $8, $9;
    fma.rn.f32 x, x, $10, 0f4B000000;
    mov.b32 bin, x;
    sub.u32 bin, bin, 0x4B000000;
    min.u32 bin, bin, {BINS.value - 1};
    mul.f32 x, $1, 0f55800000;
    cvt.rzi.u64.f32 units, x;
    mad.wide.u32 place, bin, 8, $11;
    red.relaxed.gpu.global.add.u64 [place], units;
    setp.ne.u64 is, $12, 0;
    @!is bra done;
    mad.wide.u32 place, bin, 4, $12;
    red.relaxed.gpu.global.add.u32 [place], 1;
    done:
}}""")
"""What `_counted` does. Most logits leave it soon, and tensors would go through shared memory."""


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
    row_max = tl.load(tail_of(call, blocks_of(call, row.slot)) + ROW_MAX, cache_modifier=".cg")
    low = from_key(tl.load(words + LOW, cache_modifier=".cg"), KEY_SHIFT)
    high = from_key(tl.load(words + HIGH, cache_modifier=".cg"), KEY_SHIFT)
    by_mass = tl.load(words + BY_MASS, cache_modifier=".cg") != 0
    numbers = tl.where(by_mass, 0, bin_counts(call, row).to(tl.int64))
    bins = (bin_map(low, high), bin_masses(call, row).to(tl.int64), numbers)
    scale = row_inverse(call, row) * LOG2_E
    law = (row_max, scale)
    tally = tl.zeros([TILE, QUARTER], tl.int32)
    mass = tl.zeros([TILE], tl.int64)
    source = blocks_of(call, row.source)
    following = _largest(call, source, first_tile * TILE + tl.arange(0, TILE))
    for tile in range(first_tile, last_tile):
        block = tile * TILE + tl.arange(0, TILE)
        largest = following
        following = _largest(call, source, block + TILE)
        if tl.max(largest, 0) >= low:
            first, second, third, fourth = law_quarters(call, row, block)
            tally, first = _counted(tally, first, low, high, law, bins)
            tally, second = _counted(tally, second, low, high, law, bins)
            tally, third = _counted(tally, third, low, high, law, bins)
            tally, fourth = _counted(tally, fourth, low, high, law, bins)
            sums = quarters_sum((first, second, third, fourth))
            mass += in_units(sums)
            # The closer block masses are to what is kept, the fewer blocks a draw looks into.
            sums *= tl.exp2((row_max - largest) * scale)
            out = source + padded(call.scratch.num_blocks) + block
            tl.store(out, sums, mask=(largest >= low) & (row.slot == row.source))
    tl.atomic_add(words + AT_LOW, _sum(tally & FIELD_MASK), sem="relaxed")
    tl.atomic_add(words + AT_HIGH, _sum((tally >> FIELD) & FIELD_MASK), sem="relaxed")
    tl.atomic_add(words + ABOVE_NUMBER, _sum(tally >> (2 * FIELD)), sem="relaxed")
    tl.atomic_add(mass_words(call, row) + MASS, tl.sum(mass, 0), sem="relaxed")


@triton.jit
def _largest(call, source, block):
    return tl.load(source + block, mask=block < call.scratch.num_blocks, other=NEVER)


@triton.jit
def _counted(tally, logits, low, high, law, bins):
    """Add logits between two others to their bins, and the others to the tally.

    Returns:
        The tally, and the masses of those that are not below.
    """
    row_max, scale = law
    mapped, masses, numbers = bins
    if INTERPRETED:
        mass = tl.where(logits >= low, tl.exp2((logits - row_max) * scale), 0.0)
        between = (logits > low) & (logits < high)
        place = tl.where(between, bin_of(logits, mapped), 0).to(tl.int64)
        amounts = (masses + place * 8).to(tl.pointer_type(tl.int64), bitcast=True)
        tl.atomic_add(amounts, in_units(mass), mask=between, sem="relaxed")
        amounts = (numbers + place * 4).to(tl.pointer_type(tl.int32), bitcast=True)
        one = between.to(tl.int32)
        tl.atomic_add(amounts, one, mask=between & (numbers != 0), sem="relaxed")
        tally += (logits == low).to(tl.int32)
        tally += (logits == high).to(tl.int32) << FIELD
        tally += (logits > high).to(tl.int32) << (2 * FIELD)
    else:
        up, offset, bins_each = mapped
        tally, mass = tl.inline_asm_elementwise(
            COUNT,
            "=r,=&f,0,f,f,f,f,f,f,f,f,l,l",
            [tally, logits, low, high, row_max, scale, up, offset, bins_each, masses, numbers],
            dtype=(tl.int32, tl.float32),
            is_pure=False,
            pack=1,
        )
    return tally, mass


@triton.jit
def _sum(values):
    return tl.sum(tl.sum(values, 1), 0)
