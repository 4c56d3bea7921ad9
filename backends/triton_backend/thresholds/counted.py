"""Counts rows that block statistics leave open, in rounds, by all programs.

The first round counts the upper halves of a row's logits. If these leave the threshold open, as in
float32, another round counts between two logits. The last program to finish a row finds its
threshold, or queues the row again. A program waits only for rows that others are already counting,
so any number may run at once. Sums are integers, so their order does not matter.
"""

import triton
import triton.language as tl

from .. import records
from ..assembly import store_here
from ..device import wait_for_stage_before
from ..logits import LOG2_E, NEVER
from ..quarters import QUARTER, adjusted_quarters, as_one, block_masses, quarter_marks, row_quarters
from ..queue import NUM_OPEN, next_ticket, queued_row
from ..records import blocks_of, padded, words_of
from ..rows import Row, open_row, row_recipe
from ..units import LOWEST_FINITE, from_key, in_units
from . import bins
from .found import BETWEEN, HALVES, NOTHING, find_threshold
from .touched import MOST_TOUCHED, count_touched, num_touched

MOST_TILES = tl.constexpr(16)
"""The most of a part: with logits of 16 bits 128 KB, some twenty microseconds."""


@triton.jit
def counts_stage(call, TILE: tl.constexpr):
    """Any number of programs, which read TILE blocks at once."""
    own = bins.reserve_own()
    wait_for_stage_before(call)
    num_open = tl.load(call.scratch.counters + NUM_OPEN)
    if num_open > 0:
        tiles = tl.cdiv(call.scratch.num_blocks, TILE)
        # At least a tile each: adding up a program's numbers takes as long as reading one. And as
        # many waves as parts of the largest size need, all of them full.
        waves = tl.cdiv(num_open * tl.cdiv(tiles, MOST_TILES), tl.num_programs(0))
        parts = tl.maximum(tl.num_programs(0) * waves // num_open, 1)
        tiles_per_part = tl.minimum(tl.cdiv(tiles, parts), MOST_TILES)
        parts = tl.cdiv(tiles, tiles_per_part)
        ticket = next_ticket(call)
        slot = queued_row(call, num_open, ticket // parts)
        while slot >= 0:
            row = open_row(call, slot)
            first = ticket % parts * tiles_per_part
            last = tl.minimum(first + tiles_per_part, tiles)
            _count_part(call, row, first, last, own, (ticket % parts, parts), TILE)
            tl.debug_barrier()
            words = words_of(call, blocks_of(call, row.slot), tl.int32)
            if tl.atomic_add(words + records.ARRIVALS, 1) == parts - 1:
                find_threshold(call, row)
            ticket = next_ticket(call)
            slot = queued_row(call, num_open, ticket // parts)


@triton.jit
def _count_part(call, row, first_tile, last_tile, own, part, TILE: tl.constexpr):
    words = words_of(call, blocks_of(call, row.slot), tl.int32)
    tail = words_of(call, blocks_of(call, row.slot), tl.float32)
    row_max = tl.load(tail + records.ROW_MAX, cache_modifier=".cg")
    exact = tl.load(tail + records.EXACT, cache_modifier=".cg") != 0.0
    low = from_key(tl.load(words + records.LOW, cache_modifier=".cg"), 0)
    high = from_key(tl.load(words + records.HIGH, cache_modifier=".cg"), 0)
    counted = tl.load(words + records.COUNTED, cache_modifier=".cg")
    # Rows that nothing has cut yet have exact block masses.
    weighs = (low > LOWEST_FINITE) | (counted != HALVES) | (exact == 0)
    inverse = row_recipe(call, row).inverse
    scale = inverse * LOG2_E
    bits = tl.zeros([TILE, QUARTER], tl.int32)
    mass = tl.zeros([TILE], tl.int64)
    source = blocks_of(call, row.source)
    end = tl.minimum(last_tile * TILE, call.scratch.num_blocks)
    candidates = first_tile * TILE + tl.arange(0, MOST_TILES * TILE)
    reaching = tl.load(source + candidates, mask=candidates < end, other=NEVER) >= low
    listed = row.place < 0
    moves = listed
    if call.scratch.touched is not None:
        listed = (counted == HALVES) & row.adjusts & (num_touched(call, row) <= MOST_TOUCHED)
        moves = listed & (weighs == 0)
        # Their block maxima are not those of raw logits.
        reaching = reaching | moves
    reaching = reaching & (candidates < end)
    rank = tl.cumsum(reaching.to(tl.int32), 0)
    number = tl.max(rank, 0)
    bins.put_blocks(own, candidates, rank, reaching)
    read = Row(*row[:-1], row.adjusts & (moves == 0))  # type: ignore[call-arg]
    are_raw, value, dropped = bins.value_before(low, row_max, inverse, row.mask < 0)
    are_raw = are_raw & (counted == HALVES)
    if call.entries.bias_ids is not None or call.entries.repetition is not None:
        are_raw = are_raw & (read.adjusts == 0)
    ARE_HALVES: tl.constexpr = call.variant.key_shift == 16 or call.scratch.touched is not None
    if not ARE_HALVES:
        are_raw = row.place < 0
    value = tl.where(are_raw, value, NEVER)
    dropped = tl.where(are_raw, dropped, -1)
    if counted != NOTHING:
        bins.clear_own(own)
    for first in range(0, number, TILE):
        nth = first + 1 + tl.arange(0, TILE)
        block = bins.listed_blocks(own, nth, candidates, rank)
        block = tl.where(nth <= number, block, call.scratch.num_blocks)
        inside = block < call.scratch.num_blocks
        largest = tl.load(source + block, mask=inside & (weighs != 0), other=NEVER)
        marks = quarter_marks(call, read, block)
        raw = row_quarters(call, read, block)
        if ARE_HALVES and are_raw:
            for n in tl.static_range(4):
                bins.count_halves(call, row, own, raw[n], low, value)
        if weighs | (are_raw == 0):
            quarters = adjusted_quarters(call, read, block, raw, marks, False)
            if counted >= BETWEEN:
                bins.count_keys(call, row, own, as_one(quarters), low, high)
            elif (counted == HALVES) & (are_raw == 0):
                for n in tl.static_range(4):
                    halves = bins.upper_halves(quarters[n], low)
                    bins.count_halves(call, row, own, halves, low, value)
            if call.variant.key_shift < 16:
                each = [logits.to(tl.int32, bitcast=True) for logits in quarters]
                bits |= each[0] | each[1] | each[2] | each[3]
            if weighs:
                kept = [tl.where(logits >= low, logits, NEVER) for logits in quarters]
                masses = block_masses(kept, largest, inverse)
                mass += in_units(masses * tl.exp2((largest - row_max) * scale))
                # The closer block masses are to the kept ones, the fewer blocks a draw reads.
                out = source + padded(call.scratch.num_blocks) + block
                store_here(out, masses, inside & (row.slot == row.source))
    if counted != NOTHING:
        bins.add_up(call, row, own, counted == HALVES, dropped)
        if call.scratch.touched is not None:
            if listed:
                count_touched(call, row, low, moves, row_max, inverse, *part)
            elif row.adjusts:
                tl.store(words + records.ODD_BITS, 1)
        elif call.variant.key_shift < 16:
            odd = tl.max(tl.max(bits & 0xFFFF, 1), 0)
            tl.atomic_max(words + records.ODD_BITS, odd, sem="relaxed")
    if weighs:
        place = words_of(call, blocks_of(call, row.slot), tl.int64) + records.MASS
        tl.atomic_add(place, tl.sum(mass, 0), sem="relaxed")
