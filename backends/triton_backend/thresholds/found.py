"""A row's bracket, and what a round of counting makes of it: its threshold or a narrower one."""

import triton
import triton.language as tl

from ..queue import close_row, queue_again
from ..records import (
    ABOVE_MASS,
    ABOVE_NUMBER,
    ARRIVALS,
    AT_HIGH,
    AT_LOW,
    BY_MASS,
    HIGH,
    IS_KNOWN,
    LEAST,
    LOW,
    NEXT_HIGH,
    NEXT_LOW,
    ROW_MAX,
    WHOLE,
    blocks_of,
    mass_words,
    number_words,
    store_law,
    tail_of,
)
from ..rows import row_recipe
from ..units import NO_KEY, as_key, from_key, log_of_units, mass_of

BINS = tl.constexpr(1024)
"""Of keys strictly between the ends of a bracket."""

BIN_WORDS = tl.constexpr(BINS.value * 3 // 2)
"""Words of 8 bytes of a row's bins: masses, then numbers in half a word each."""

FOUND = tl.constexpr(0)
INSIDE = tl.constexpr(1)
"""In a bin of several keys."""
BELOW = tl.constexpr(2)
ABOVE = tl.constexpr(3)


@triton.jit
def bin_masses(call, row):
    """Where the masses of a row's bins are: int64, in units."""
    return call.scratch.bins + row.slot * BIN_WORDS


@triton.jit
def bin_counts(call, row):
    """Where the numbers of logits in a row's bins are: int32."""
    return (bin_masses(call, row) + BINS).to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def bin_shift(low, high):
    """How many low bits of a key a bin ignores: the fewest with which all between find room."""
    last = tl.maximum(high.to(tl.int64) - low - 2, 0)
    shift = low * 0
    for bit in tl.static_range(23):
        shift += ((last >> bit) >= BINS).to(tl.int32)
    return shift


@triton.jit
def start_round(call, row, low, high, least, by_mass):
    """Make a row ready to be counted between two keys."""
    words = number_words(call, row)
    tl.store(words + LOW, tl.where(low == NO_KEY, 0, low))
    tl.store(words + HIGH, tl.where(high == NO_KEY, NO_KEY - 1, high))
    tl.store(words + LEAST, least)
    tl.store(words + BY_MASS, by_mass)
    tl.store(words + AT_LOW, 0)
    tl.store(words + AT_HIGH, 0)
    tl.store(words + ARRIVALS, 0)
    place = tl.arange(0, BINS)
    tl.store(bin_masses(call, row) + place, tl.zeros([BINS], tl.int64))
    tl.store(bin_counts(call, row) + place, 0)


@triton.jit
def store_above(call, row, number, mass, is_known):
    """What is above a bracket."""
    words = number_words(call, row)
    tl.store(words + ABOVE_NUMBER, number)
    tl.store(mass_words(call, row) + ABOVE_MASS, mass)
    tl.store(words + IS_KNOWN, is_known)


@triton.jit
def find_threshold(call, row):
    """Look at a counted bracket: store the row's law, or start another round."""
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    recipe = row_recipe(call, row)
    words = number_words(call, row)
    row_max = tl.load(tail_of(call, blocks_of(call, row.slot)) + ROW_MAX, cache_modifier=".cg")
    low = tl.load(words + LOW, cache_modifier=".cg")
    high = tl.load(words + HIGH, cache_modifier=".cg")
    least = tl.load(words + LEAST, cache_modifier=".cg")
    began_by_mass = tl.load(words + BY_MASS, cache_modifier=".cg")
    whole = tl.load(mass_words(call, row) + WHOLE, cache_modifier=".cg")
    numbers, masses = _levels(call, row, low, high, row_max, recipe.inverse)
    shift = bin_shift(low, high)
    by_mass = began_by_mass
    key, outcome, above_number, above_mass, kept = _look(
        numbers, masses, low, high, least, shift, by_mass, recipe, whole
    )
    if (outcome == FOUND) & (by_mass == 0):
        whole = kept
        if recipe.top_p < 1.0:
            by_mass = by_mass * 0 + 1
            least = tl.maximum(key, least)
            key, outcome, above_number, above_mass, kept = _look(
                numbers, masses, low, high, least, shift, by_mass, recipe, whole
            )
    if outcome == FOUND:
        store_law(call, row, log_of_units(kept), from_key(key, KEY_SHIFT), 0.0)
        close_row(call)
    else:
        top = as_key(row_max, KEY_SHIFT)
        new_low = key
        new_high = tl.minimum(key + ((key * 0 + 1) << shift) - 1, high - 1)
        is_known = key * 0 + 1
        if outcome == BELOW:
            new_low = least
            new_high = low - 1
        elif outcome == ABOVE:
            new_low = high + 1
            new_high = top
            if by_mass != began_by_mass:
                is_known = key * 0
                new_low = tl.maximum(new_low, tl.load(words + NEXT_LOW))
                new_high = tl.minimum(tl.maximum(new_low, tl.load(words + NEXT_HIGH)), top)
        start_round(call, row, new_low, new_high, least, by_mass)
        store_above(call, row, above_number, above_mass, is_known)
        tl.store(mass_words(call, row) + WHOLE, whole)
        queue_again(call, row.slot)


@triton.jit
def _levels(call, row, low, high, row_max, inverse):
    """Numbers and masses that were counted: above, at the upper end, in bins, at the lower."""
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    words = number_words(call, row)
    place = tl.arange(0, BINS)
    at_low = tl.load(words + AT_LOW, cache_modifier=".cg").to(tl.int64)
    at_low = tl.where(low < high, at_low, 0)
    at_high = tl.load(words + AT_HIGH, cache_modifier=".cg").to(tl.int64)
    numbers = (
        tl.load(words + ABOVE_NUMBER, cache_modifier=".cg").to(tl.int64),
        at_high,
        tl.load(bin_counts(call, row) + place, cache_modifier=".cg").to(tl.int64),
        at_low,
    )
    masses = (
        tl.load(mass_words(call, row) + ABOVE_MASS, cache_modifier=".cg"),
        at_high * mass_of(from_key(high, KEY_SHIFT), row_max, inverse),
        tl.load(bin_masses(call, row) + place, cache_modifier=".cg"),
        at_low * mass_of(from_key(low, KEY_SHIFT), row_max, inverse),
    )
    return numbers, masses


@triton.jit
def _look(numbers, masses, low, high, least, shift, by_mass, recipe, whole):
    """Where the threshold is that a number of tokens or a share of the mass asks for.

    Returns:
        A key, the threshold's or the lowest of its bin; what came out; the number and the mass
        above a narrower bracket; and the mass from the threshold on, in units.
    """
    above_number, at_high_number, bin_numbers, at_low_number = numbers
    above_mass, at_high_mass, bin_mass, at_low_mass = masses
    above = tl.where(by_mass != 0, above_mass, above_number)
    to_high = above + tl.where(by_mass != 0, at_high_mass, at_high_number)
    amounts = tl.where(by_mass != 0, bin_mass, bin_numbers)
    to_bottom = to_high + tl.sum(amounts, 0)
    to_low = to_bottom + tl.where(by_mass != 0, at_low_mass, at_low_number)
    # Min-p alone asks for all that there are.
    rank = tl.where(recipe.top_k > 0, recipe.top_k.to(tl.float64), float("inf"))
    share = recipe.top_p.to(tl.float64) * whole.to(tl.float64)
    needed = tl.where(by_mass != 0, share, rank)
    place = tl.arange(0, BINS)
    reached = to_high + tl.cumsum(amounts, 0, reverse=True)
    lowest = tl.max(tl.where((reached.to(tl.float64) >= needed) & (amounts > 0), place, -1), 0)
    key = low
    outcome = low * 0 + FOUND
    kept = above_mass + at_high_mass + tl.sum(bin_mass, 0) + at_low_mass
    next_number = above_number + at_high_number + tl.sum(bin_numbers, 0) + at_low_number
    next_mass = kept
    if above.to(tl.float64) >= needed:
        outcome = low * 0 + ABOVE
        next_number = next_number * 0
        next_mass = kept * 0
    elif to_high.to(tl.float64) >= needed:
        key = high
        kept = above_mass + at_high_mass
    elif to_bottom.to(tl.float64) >= needed:
        key = low + 1 + (lowest << shift)
        outcome = tl.where(shift == 0, FOUND, INSIDE)
        kept = above_mass + at_high_mass + tl.sum(tl.where(place >= lowest, bin_mass, 0), 0)
        next_number = tl.sum(tl.where(place > lowest, bin_numbers, 0), 0)
        next_number += above_number + at_high_number
        next_mass = above_mass + at_high_mass + tl.sum(tl.where(place > lowest, bin_mass, 0), 0)
    elif (to_low.to(tl.float64) < needed) & (low > least):
        outcome = low * 0 + BELOW
    key = tl.where(outcome == FOUND, tl.maximum(key, least), key)
    return key, outcome, next_number, next_mass, kept
