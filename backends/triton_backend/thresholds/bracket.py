"""Where the threshold of a row lies, as a sample of its logits says: Floyd and Rivest's selection.

A bracket costs time where it is wrong, never a token: who counts finds out. (Floyd, Rivest:
"Expected time bounds for selection", Communications of the ACM, 1975.)
"""

import triton
import triton.language as tl

from ..arguments import opened
from ..device import let_next_stage_start, wait_for_stage_before
from ..logits import NEVER, row_logits
from ..records import BRACKETS, COUNTS, NUM_LISTED, ROW_MAX, WEIGHTS, blocks_of, open_slot, tail_of
from ..rows import open_row, row_recipe
from ..units import HIGHEST_KEY, LOWEST_KEY, UNITS, as_key, floor_of, from_key

CHUNK = tl.constexpr(16)
"""Neighbours in the sample: 32 bytes, the least that memory hands out."""

SIGMAS = tl.constexpr(4.0)
"""Standard deviations to both sides: one row in 16,000 is missed."""

SLACK = tl.constexpr(4.0)
"""Logits more on each side, for rows of which the sample holds few that matter."""

STEPS = tl.constexpr(20)
"""Halvings of what lies between the ends of the sample: 16 bits take no more than 16."""

ROUNDING = tl.constexpr(1e-5)
"""More than the relative error of a sum of masses in float32."""


@triton.jit
def sampled(call, row, vocab_size):
    """Logits of a row from all parts of the vocabulary: [sample]; all of them if they fit."""
    SAMPLE: tl.constexpr = call.variant.sample
    place = tl.arange(0, SAMPLE)
    chunk = place // CHUNK
    room = tl.maximum(vocab_size // (SAMPLE // CHUNK) - CHUNK, 0) + 1
    # Scattered, so that no period in the vocabulary fools it.
    offset = ((chunk * 40503) & 0xFFFF) % room
    first = (chunk.to(tl.int64) * vocab_size // (SAMPLE // CHUNK)).to(tl.int32) + offset
    ids = tl.where(vocab_size <= SAMPLE, place, first // CHUNK * CHUNK + place % CHUNK)
    return row_logits(call, row, ids)


@triton.jit
def brackets_kernel(call):
    """Any number of programs; each takes open rows."""
    let_next_stage_start(call.variant.overlaps)
    opened(call, _bracket_rows, ())


@triton.jit
def _bracket_rows(call):
    wait_for_stage_before(call.variant.overlaps)
    num_open = tl.load(call.scratch.num_open)
    for number in range(tl.program_id(0), num_open, tl.num_programs(0)):
        row = open_row(call, tl.load(open_slot(call, num_open * 0 + number)))
        recipe = row_recipe(call, row)
        tail = tail_of(call, blocks_of(call, row.slot))
        weights = (tail + WEIGHTS).to(tl.pointer_type(tl.int64), bitcast=True)
        row_max = tl.load(tail + ROW_MAX)
        total = tl.load(weights)
        floor = floor_of(recipe, row_max)
        low_rank, high_rank, low_mass, high_mass = bracket(call, row, recipe, row_max, total, floor)
        tl.store(tail + BRACKETS, low_rank)
        tl.store(tail + BRACKETS + 1, high_rank)
        tl.store(tail + BRACKETS + 2, low_mass)
        tl.store(tail + BRACKETS + 3, high_mass)
        tl.store(weights, tl.where((recipe.top_k == 0) & (floor == NEVER), total, 0))
        tl.store(weights + 1, total * 0)
        counts = (tail + COUNTS).to(tl.pointer_type(tl.int32), bitcast=True)
        place = tl.arange(0, 8)
        tl.store(counts + place, 0, mask=place <= NUM_LISTED - COUNTS)


@triton.jit
def bracket(call, row, recipe, row_max, total, floor):
    """Two brackets, as (low, high, low, high): the second one is where top-p cuts.

    The first one is where min-p and top-k cut together. An end of -inf or inf is none.

    Args:
        call, row, recipe: see `arguments` and `rows`.
        row_max, floor: scalars, the largest logit and the least that min-p keeps.
        total: scalar int64, the mass of the row in units.
    """
    vocab_size = row.place * 0 + call.target.vocab_size
    if call.draft.logits is not None:
        vocab_size = tl.where(row.is_draft, call.draft.vocab_size, vocab_size)
    logits = sampled(call, row, vocab_size)
    keys = as_key(logits, call.variant.key_shift)
    ones = (logits > NEVER).to(tl.float32)
    number = tl.minimum(vocab_size, call.variant.sample).to(tl.float32)
    scale = vocab_size.to(tl.float32) / number
    doubt = (scale > 1.0).to(tl.float32)
    law = (row_max, recipe.inverse)
    low_rank = floor
    high_rank = floor
    if recipe.top_k > 0:
        wanted = recipe.top_k.to(tl.float32) / scale
        error = SIGMAS * tl.sqrt(wanted * tl.maximum(1.0 - wanted / number, 0.0)) + SLACK
        rest = tl.sum(ones, 0) - wanted
        low, _high = _cut(call, keys, ones, rest - doubt * error, 0.0, law)
        _low, high = _cut(call, keys, ones, rest + doubt * error, 0.0, law)
        low_rank = tl.maximum(low, floor)
        high_rank = tl.maximum(high, low_rank)
    MOST: tl.constexpr = call.variant.capacity / 2
    cut_before = (recipe.top_k > 0) | (floor > NEVER)
    all_listed = cut_before & (scale * tl.sum(tl.where(logits >= low_rank, ones, 0.0), 0) <= MOST)
    if all_listed:
        high_rank = row_max * 0.0 + float("inf")
    low_mass = row_max * 0.0 + NEVER
    high_mass = low_mass
    if recipe.top_p < 1.0:
        low_mass = low_rank
        high_mass = high_rank
        if all_listed == 0:
            weights = tl.where(logits > NEVER, tl.exp((logits - row_max) * recipe.inverse), 0.0)
            whole = total.to(tl.float32) / (UNITS * scale)
            below_low = tl.sum(tl.where(logits < low_rank, weights, 0.0), 0)
            below_high = tl.sum(tl.where(logits < high_rank, weights, 0.0), 0)
            # What may be cut is many tokens of little mass: the sample is right about those.
            least = whole - recipe.top_p * (whole - below_low)
            most = whole - recipe.top_p * (whole - below_high)
            rounding = ROUNDING * whole
            low, _high = _cut(call, keys, weights, least - rounding, doubt, law)
            _low, high = _cut(call, keys, weights, most + rounding, -doubt, law)
            low_mass = tl.maximum(low, low_rank)
            high_mass = tl.maximum(high, low_mass)
            if scale * tl.sum(tl.where(logits >= low_mass, ones, 0.0), 0) <= MOST:
                high_mass = row_max * 0.0 + float("inf")
    return low_rank, high_rank, low_mass, high_mass


@triton.jit
def _cut(call, keys, weights, rest, doubt, law):
    """Two neighbours: below the first a sample weighs no more than so much, below the other more.

    Args:
        call: see `arguments`.
        keys, weights: [sample].
        rest: scalar, how much that is.
        doubt: 1 to add to what lies below some logit by how much that may be wrong, -1 to take it
            away, 0 for neither.
        law: scalars, the row's largest logit and 1 / temperature.

    Returns:
        Two logits; -inf if more lies below the smallest of the sample, inf if no more does at all.
    """
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    row_max, inverse = law
    lowest = tl.min(tl.where(weights > 0.0, keys, HIGHEST_KEY), 0).to(tl.int64)
    highest = tl.max(tl.where(weights > 0.0, keys, LOWEST_KEY), 0).to(tl.int64) + 1
    low = lowest
    high = highest
    steps = 0
    while (high - low > 1) & (steps < STEPS):
        middle = low + (high - low) // 2
        below = tl.where(keys < middle.to(tl.int32), weights, 0.0)
        own = tl.exp((from_key(middle, KEY_SHIFT) - row_max) * inverse)
        mass = tl.sum(below, 0)
        # None of those below weighs more than this logit, which bounds the variance of their sum.
        error = SIGMAS * tl.sqrt(own * mass) + SLACK * own
        fits = mass + doubt * error <= rest
        low = tl.where(fits, middle, low)
        high = tl.where(fits, high, middle)
        steps += 1
    below_low = tl.where(low > lowest, from_key(low, KEY_SHIFT), NEVER)
    return below_low, tl.where(high < highest, from_key(high, KEY_SHIFT), float("inf"))
