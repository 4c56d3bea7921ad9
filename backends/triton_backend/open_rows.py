"""Stage 2, second half: rows whose threshold block maxima leave open, by many programs each.

Programs take tickets: first to count parts of rows, then, as soon as a row's threshold is known,
to correct the statistics of its blocks. Who waits waits only for what others have begun, so no
number of programs is needed at once. This module refuses to find a threshold: see
`counted_threshold`.
"""

import triton
import triton.language as tl

from .counted_threshold import counted_threshold
from .filters import CAPACITY, UNDECIDED, counts_of, row_recipe
from .histogram import bin_scale, count_logits, keys_are_few, row_maxima
from .kept_statistics import keep, load_quarters
from .listed_rows import listed, load_blocks, next_blocks
from .mass_units import UNITS
from .overlap import let_next_stage_start, wait_for_stage_before
from .race import NEVER
from .recipe import first_row


@triton.jit
def open_rows_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Any number of programs; TILE blocks are read at once."""
    let_next_stage_start(OVERLAPS)
    wait_for_stage_before(OVERLAPS)
    num_rows = tl.load(scratch.listing)
    if num_rows > 0:
        tiles = tl.cdiv(scratch.num_blocks, TILE)
        parts = tl.minimum(tl.cdiv(2 * tl.num_programs(0), num_rows), tiles)
        blocks_per_part = tl.cdiv(tiles, parts) * TILE
        parts = tl.cdiv(scratch.num_blocks, blocks_per_part)
        num_parts = num_rows * parts
        ticket = tl.atomic_add(scratch.listing + 1, 1, sem="relaxed")
        while ticket < 2 * num_parts:
            number = ticket % num_parts // parts
            part = ticket % parts
            record = scratch.open_rows + number * 4
            slot = tl.load(record)
            bound = tl.load(record + 1).to(tl.float32, bitcast=True)
            total = tl.load(record.to(tl.pointer_type(tl.int64), bitcast=True) + 1)
            request = slot // ROWS
            row = slot % ROWS
            start, _rows = first_row(target, request)
            inverse, _greedy, min_p, top_k, top_p, vocab_size, _place = row_recipe(
                target, draft, target_recipe, draft_recipe, request, row, NUM_DRAFTS
            )
            at = (request, start, row)
            summary = scratch.summaries + slot.to(tl.int64) * 2
            row_max = tl.load(summary)
            out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
            first = part * blocks_per_part
            last = tl.minimum(first + blocks_per_part, scratch.num_blocks)
            thresholds = scratch.thresholds.to(tl.pointer_type(tl.int32), bitcast=True)
            if ticket < num_parts:
                counts, copies = counts_of(scratch, number, slot)
                count_part(
                    target,
                    draft,
                    adjust,
                    requests,
                    at,
                    out,
                    counts + part % copies * CAPACITY,
                    first,
                    last,
                    scratch.num_blocks,
                    bound,
                    row_max,
                    inverse,
                    TILE,
                    NUM_DRAFTS,
                    WIDTH,
                    KEY_SHIFT,
                )
                tl.debug_barrier()
                if tl.atomic_add(scratch.arrivals + slot, 1) == parts - 1:
                    by_rank = (top_k > 0) & (top_k < vocab_size)
                    threshold, mass = counted_threshold(
                        target,
                        draft,
                        adjust,
                        requests,
                        at,
                        out,
                        counts,
                        copies,
                        scratch.candidates + slot.to(tl.int64) * CAPACITY,
                        scratch.num_blocks,
                        bound,
                        row_max,
                        inverse,
                        total,
                        (min_p > 0.0, top_k, by_rank, top_p, top_p < 1.0),
                        NUM_DRAFTS,
                        WIDTH,
                        KEY_SHIFT,
                    )
                    tl.store(scratch.arrivals + slot, 0)
                    tl.store(summary + 1, tl.log(mass.to(tl.float32) / UNITS))
                    tl.atomic_xchg(thresholds + slot, threshold.to(tl.int32, bitcast=True))
            else:
                keep_part(
                    target,
                    draft,
                    adjust,
                    requests,
                    at,
                    out,
                    thresholds + slot,
                    first,
                    last,
                    scratch.num_blocks,
                    inverse,
                    TILE,
                    NUM_DRAFTS,
                    WIDTH,
                )
            ticket = tl.atomic_add(scratch.listing + 1, 1, sem="relaxed")
        if tl.atomic_add(scratch.listing + 2, 1) == tl.num_programs(0) - 1:
            tl.store(scratch.listing, 0)
            tl.store(scratch.listing + 1, 0)
            tl.store(scratch.listing + 2, 0)


@triton.jit
def reaching_blocks(out, first, last, num_blocks, bound, WIDTH: tl.constexpr):
    """The blocks from first to before last that reach a bound, see `listed`."""
    block = tl.arange(0, WIDTH)
    largest = row_maxima(out, num_blocks, WIDTH)
    return listed((largest >= bound) & (block >= first) & (block < last))


@triton.jit
def count_part(
    target,
    draft,
    adjust,
    requests,
    at,
    out,
    counts,
    first,
    last,
    num_blocks,
    bound,
    row_max,
    inverse,
    TILE: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """Count the logits of blocks from first to before last that reach a bound."""
    origin = row_max * 0.0
    scale = origin
    if not keys_are_few(bound, row_max, KEY_SHIFT):
        origin, scale = bin_scale(row_maxima(out, num_blocks, WIDTH), bound, row_max)
    if last - first <= TILE:
        block = first + tl.arange(0, TILE)
        block = tl.where(block < last, block, num_blocks)
        logits = load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS)
        count_logits(logits, counts, bound, row_max, inverse, origin, scale, KEY_SHIFT)
    else:
        places, num_listed = reaching_blocks(out, first, last, num_blocks, bound, WIDTH)
        for place in range(0, num_listed, TILE):
            block = next_blocks(places, place, num_blocks, TILE)
            logits = load_blocks(target, draft, adjust, requests, at, block, NUM_DRAFTS)
            count_logits(logits, counts, bound, row_max, inverse, origin, scale, KEY_SHIFT)


@triton.jit
def keep_part(
    target,
    draft,
    adjust,
    requests,
    at,
    out,
    threshold_bits,
    first,
    last,
    num_blocks,
    inverse,
    TILE: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Correct the statistics of blocks from first to before last, once the threshold is known."""
    if last - first <= TILE:
        block = first + tl.arange(0, TILE)
        block = tl.where(block < last, block, num_blocks)
        quarters = load_quarters(target, draft, adjust, requests, at, block, NUM_DRAFTS)
        keep(quarters, out, block, num_blocks, when_known(threshold_bits), inverse)
    else:
        threshold = when_known(threshold_bits)
        places, num_listed = reaching_blocks(out, first, last, num_blocks, threshold, WIDTH)
        every = tl.arange(0, WIDTH)
        gone = (places < 0) & (every >= first) & (every < last)
        tl.store(out + every, NEVER, mask=gone)
        tl.store(out + num_blocks + every, 0.0, mask=gone)
        for place in range(0, num_listed, TILE):
            block = next_blocks(places, place, num_blocks, TILE)
            quarters = load_quarters(target, draft, adjust, requests, at, block, NUM_DRAFTS)
            keep(quarters, out, block, num_blocks, threshold, inverse)


@triton.jit
def when_known(threshold_bits):
    """A row's threshold, as soon as it is known."""
    bits = tl.atomic_add(threshold_bits, 0)
    while bits == UNDECIDED:
        bits = tl.atomic_add(threshold_bits, 0)
    return bits.to(tl.float32, bitcast=True)
