"""The threshold of a counted row: what is listed is ranked, and all else has been counted."""

import triton
import triton.language as tl

from ..arguments import opened
from ..device import let_next_stage_start, wait_for_stage_before
from ..logits import NEVER
from ..records import (
    BRACKETS,
    COUNTS,
    NUM_LISTED,
    ROW_MAX,
    WEIGHTS,
    blocks_of,
    open_slot,
    store_law,
    tail_of,
)
from ..rows import open_row, row_recipe
from ..units import as_key, floor_of, from_key, highest_reaching, log_of_units, mass_of
from .searched import searched_row


@triton.jit
def selection_kernel(call):
    """Any number of programs; each takes open rows, all parts of which have been counted."""
    let_next_stage_start(call.variant.overlaps)
    opened(call, _select_rows, ())


@triton.jit
def _select_rows(call):
    wait_for_stage_before(call.variant.overlaps)
    num_open = tl.load(call.scratch.num_open)
    for number in range(tl.program_id(0), num_open, tl.num_programs(0)):
        row = open_row(call, tl.load(open_slot(call, num_open * 0 + number)))
        _select_row(call, row, tail_of(call, blocks_of(call, row.slot)))


@triton.jit
def _select_row(call, row, tail):
    """Find a row's threshold and the mass that it leaves."""
    recipe = row_recipe(call, row)
    row_max = tl.load(tail + ROW_MAX)
    weights = (tail + WEIGHTS).to(tl.pointer_type(tl.int64), bitcast=True)
    numbers = (tail + COUNTS).to(tl.pointer_type(tl.int32), bitcast=True)
    num_listed = tl.load((tail + NUM_LISTED).to(tl.pointer_type(tl.int32), bitcast=True))
    place = tl.arange(0, call.variant.capacity)
    listed = call.scratch.listed + row.slot * call.variant.capacity
    logits = tl.load(listed + place, mask=place < num_listed, other=NEVER)
    masses = mass_of(logits, row_max, recipe.inverse)
    found = num_listed <= call.variant.capacity
    threshold = tl.load(tail + BRACKETS)
    high_rank = tl.load(tail + BRACKETS + 1)
    low = tl.load(tail + BRACKETS + 2)
    high = tl.load(tail + BRACKETS + 3)
    whole = tl.load(weights)
    whole_from_low = tl.load(weights + 1)
    reached = tl.load(numbers)
    equal = tl.load(numbers + 1)
    equal_high = tl.load(numbers + 2)
    equal_low_mass = tl.load(numbers + 3)
    equal_high_mass = tl.load(numbers + 4)
    if call.variant.ranks:
        floor = threshold
        ends = (threshold, high_rank)
        if recipe.top_k > 0:
            ones = (logits > NEVER).to(tl.int32)
            known = (reached, equal, equal_high)
            needed = recipe.top_k.to(tl.float64)
            threshold, too_low, enough = _chosen(call, logits, ones, ends, known, needed)
            # Less than k tokens that min-p keeps are all kept.
            enough = enough | (floor <= floor_of(recipe, row_max))
            found = found & enough & (too_low == 0)
        at_low = mass_of(floor, row_max, recipe.inverse) * equal
        whole = _reaching(logits, masses, ends, (whole, at_low), threshold)
    if call.variant.masses:
        if recipe.top_p < 1.0:
            at_low = mass_of(low, row_max, recipe.inverse) * equal_low_mass
            at_high = mass_of(high, row_max, recipe.inverse) * equal_high_mass
            known = (whole_from_low, at_low, at_high)
            needed = recipe.top_p.to(tl.float64) * whole.to(tl.float64)
            value, too_low, enough = _chosen(call, logits, masses, (low, high), known, needed)
            found = found & (enough | (low <= threshold)) & (too_low == 0)
            if value > threshold:
                whole = _reaching(logits, masses, (low, high), (whole_from_low, at_low), value)
                threshold = value
    if found == 0:
        threshold, whole = searched_row(call, row, recipe, row_max)
    store_law(call, row, log_of_units(whole), threshold, tl.where(found, 0.0, 1.0))


@triton.jit
def _chosen(call, logits, weights, ends, known, needed):
    """The largest logit of a bracket that, with all above it, weighs so much, or its lower end.

    Args:
        call: see `arguments`.
        logits, weights: [capacity], what is listed, and numbers that it weighs.
        ends: the bracket.
        known: scalars, what reaches its lower end, and what equals it and the upper one.
        needed: scalar float64.

    Returns:
        The logit, whether so much lies above the bracket, and whether so much reaches it.
    """
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    low, high = ends
    reached, at_low, at_high = known
    listed = tl.where((logits > low) & (logits < high), weights, 0)
    between = tl.sum(listed, 0).to(tl.int64)
    above = tl.where(high < float("inf"), reached - at_low - between, 0)
    beyond = tl.where((high < float("inf")) & (low < high), above - at_high, above)
    value = low
    if (low < high) & (above.to(tl.float64) >= needed):
        value = high
    elif (above + between).to(tl.float64) >= needed:
        rest = needed - above.to(tl.float64)
        value = from_key(highest_reaching(as_key(logits, KEY_SHIFT), listed, rest), KEY_SHIFT)
    reached = tl.where(high < float("inf"), reached, at_low + between)
    return value, beyond.to(tl.float64) >= needed, reached.to(tl.float64) >= needed


@triton.jit
def _reaching(logits, masses, ends, known, value):
    """The mass that reaches a logit of a bracket, in units; arguments as in `_chosen`."""
    low, high = ends
    reached, at_low = known
    listed = tl.where((logits > low) & (logits < high), masses, 0)
    between = tl.sum(listed, 0)
    kept = tl.sum(tl.where(logits >= value, listed, 0), 0)
    # Where all that reaches the bracket is listed, nothing else is asked.
    above = tl.where(high < float("inf"), reached - at_low - between, 0)
    return above + kept + tl.where(value == low, at_low, 0)
