"""A row's bracket, and what a round of counting makes of it: its threshold or a narrower one."""

import triton
import triton.language as tl

from ..queue import close_row, queue_again
from ..records import (
    ABOVE_NUMBER,
    ARRIVALS,
    AT_HIGH,
    AT_LOW,
    BY_MASS,
    HIGH,
    LEAST,
    LOW,
    MASS,
    MOST,
    ROW_MAX,
    WHOLE,
    blocks_of,
    mass_words,
    number_words,
    store_law,
    tail_of,
)
from ..rows import row_recipe
from ..units import HIGHEST_KEY, LOWEST_KEY, NO_KEY, as_key, from_key, log_of_units, mass_of

BINS = tl.constexpr(1024)
"""Of equal width, for the logits strictly between the ends of a bracket."""

BIN_WORDS = tl.constexpr(BINS.value * 3 // 2)
"""Words of 8 bytes of a row's bins: masses, then numbers in half a word each."""

FURTHER = tl.constexpr(16.0)
"""Times the distance from the largest logit that a bracket is extended to, if it was too high."""
NEAR = tl.constexpr(16)
"""Keys that are looked at for those of a bin."""


@triton.jit
def bin_masses(call, row):
    """Where the masses of a row's bins are: int64, in units."""
    return call.scratch.bins + row.slot * BIN_WORDS


@triton.jit
def bin_counts(call, row):
    """Where the numbers of logits in a row's bins are: int32."""
    return (bin_masses(call, row) + BINS).to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def bin_map(low, high):
    """What `bin_of` needs between two logits: a power of two, an offset, and bins for each unit.

    The power brings their difference to about 1, so that nothing overflows or vanishes.
    """
    exponent = tl.minimum((high - low).to(tl.int32, bitcast=True), 0x7F000000) & 0x7F800000
    up = tl.maximum(0x7F000000 - exponent, 0x00800000).to(tl.float32, bitcast=True)
    offset = -low * up
    return up, offset, 1.0 / tl.fma(high, up, offset) * (BINS - 1)


@triton.jit
def bin_of(logits, mapped):
    """The bins of logits between two others, which rise with them: int32."""
    up, offset, bins_each = mapped
    # Added to 2**23, a number is rounded to an integer, which is what its lowest bits say.
    number = tl.fma(tl.fma(logits, up, offset), bins_each, 8388608.0).to(tl.int32, bitcast=True)
    return tl.minimum(tl.maximum(number - 0x4B000000, 0), BINS - 1)


@triton.jit
def _keys_of(number, low, high, KEY_SHIFT: tl.constexpr):
    """The first and the last key, at least, of a bin; the same if there is but one."""
    low_logit = from_key(low, KEY_SHIFT)
    high_logit = from_key(high, KEY_SHIFT)
    step = high_logit / (BINS - 1) - low_logit / (BINS - 1)
    near = as_key(tl.fma(number.to(tl.float32), step, low_logit), KEY_SHIFT)
    near += tl.arange(0, NEAR) - NEAR // 2
    found = bin_of(from_key(near, KEY_SHIFT), bin_map(low_logit, high_logit))
    # Ends have no bin, and -0.0 is no key.
    found = tl.where(near <= low, -1, tl.where(near >= high, BINS, found))
    has_all = (tl.min(found, 0) < number) & (tl.max(found, 0) > number)
    within = (found == number) & (near != NO_KEY)
    first = tl.min(tl.where(within, near, HIGHEST_KEY), 0)
    last = tl.max(tl.where(within, near, LOWEST_KEY), 0)
    below = tl.fma(number.to(tl.float32) - 0.51, step, low_logit)
    beyond = tl.fma(number.to(tl.float32) + 0.51, step, low_logit)
    first = tl.where(has_all, first, tl.maximum(as_key(below, KEY_SHIFT) - 1, low + 1))
    last = tl.where(has_all, last, tl.minimum(as_key(beyond, KEY_SHIFT) + 1, high - 1))
    return first, last


@triton.jit
def start_round(call, row, low, high, limits, by_mass, whole):
    """Make a row ready to be counted between two keys; the threshold is within limits."""
    words = number_words(call, row)
    tl.store(words + LOW, tl.where(low == NO_KEY, 0, low))
    tl.store(words + HIGH, tl.where(high == NO_KEY, NO_KEY - 1, high))
    least, most = limits
    tl.store(words + LEAST, least)
    tl.store(words + MOST, most)
    tl.store(words + BY_MASS, by_mass)
    tl.store(words + ABOVE_NUMBER, 0)
    tl.store(words + AT_LOW, 0)
    tl.store(words + AT_HIGH, 0)
    tl.store(words + ARRIVALS, 0)
    tl.store(mass_words(call, row) + MASS, whole * 0)
    tl.store(mass_words(call, row) + WHOLE, whole)
    place = tl.arange(0, BINS)
    tl.store(bin_masses(call, row) + place, tl.zeros([BINS], tl.int64))
    tl.store(bin_counts(call, row) + place, 0)


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
    most = tl.load(words + MOST, cache_modifier=".cg")
    by_mass = tl.load(words + BY_MASS, cache_modifier=".cg")
    whole = tl.load(mass_words(call, row) + WHOLE, cache_modifier=".cg")
    numbers, masses = _levels(call, row, low, high, row_max, recipe.inverse)
    ends = (low, high, least, most, row_max)
    # Min-p alone asks for all that there are.
    needed = tl.where(recipe.top_k > 0, recipe.top_k.to(tl.float64), float("inf"))
    if by_mass:
        needed = recipe.top_p.to(tl.float64) * whole.to(tl.float64)
        first, last, kept = _look(masses, masses, needed, ends, KEY_SHIFT)
    else:
        first, last, kept = _look(numbers, masses, needed, ends, KEY_SHIFT)
        if (first == last) & (recipe.top_p < 1.0):
            by_mass = by_mass + 1
            whole = kept
            least = tl.maximum(first, least)
            needed = recipe.top_p.to(tl.float64) * whole.to(tl.float64)
            ends = (low, high, least, as_key(row_max, KEY_SHIFT), row_max)
            first, last, kept = _look(masses, masses, needed, ends, KEY_SHIFT)
    if first == last:
        store_law(call, row, log_of_units(kept), from_key(tl.maximum(first, least), KEY_SHIFT), 0.0)
        close_row(call)
    else:
        # Once limits, keys stay limits, whatever the rounding of sums in another round. Only a row
        # that is searched below its bracket may have its threshold below the next one, too.
        limits = (tl.where(last == low, least, first), last)
        start_round(call, row, first, last, limits, by_mass, whole)
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
    in_bins = tl.load(bin_counts(call, row) + place, cache_modifier=".cg").to(tl.int64)
    above = tl.load(words + ABOVE_NUMBER, cache_modifier=".cg").to(tl.int64)
    bin_mass = tl.load(bin_masses(call, row) + place, cache_modifier=".cg")
    low_mass = at_low * mass_of(from_key(low, KEY_SHIFT), row_max, inverse)
    high_mass = at_high * mass_of(from_key(high, KEY_SHIFT), row_max, inverse)
    above_mass = tl.load(mass_words(call, row) + MASS, cache_modifier=".cg")
    above_mass -= low_mass + tl.sum(bin_mass, 0) + high_mass
    numbers = (above, at_high, in_bins, at_low)
    masses = (above_mass, high_mass, bin_mass, low_mass)
    return numbers, masses


@triton.jit
def _look(amounts, masses, needed, ends, KEY_SHIFT: tl.constexpr):
    """Where the threshold is that a number of tokens or a share of the mass asks for.

    Returns:
        Two keys that it is between, one if it is found; and then the mass from it on, in units.
    """
    low, high, least, most, row_max = ends
    above, at_high, in_bins, at_low = amounts
    above_mass, high_mass, bin_mass, low_mass = masses
    to_high = above + at_high
    to_bottom = to_high + tl.sum(in_bins, 0)
    place = tl.arange(0, BINS)
    reached = (to_high + tl.cumsum(in_bins, 0, reverse=True)).to(tl.float64) >= needed
    lowest = tl.max(tl.where(reached & (in_bins > 0), place, -1), 0)
    kept = above_mass + high_mass
    first = high
    last = high
    if (above.to(tl.float64) >= needed) & (high < most):
        last = most
    elif to_high.to(tl.float64) < needed:
        if to_bottom.to(tl.float64) >= needed:
            first, last = _keys_of(lowest, low, high, KEY_SHIFT)
            kept += tl.sum(tl.where(place >= lowest, bin_mass, 0), 0)
        else:
            kept += tl.sum(bin_mass, 0) + low_mass
            last = low
            first = low
            if ((to_bottom + at_low).to(tl.float64) < needed) & (low > least):
                distance = row_max - from_key(low, KEY_SHIFT)
                first = as_key(row_max - FURTHER * distance, KEY_SHIFT)
                # From the largest logit itself there is no distance to be a multiple of.
                first = tl.where(distance > 0.0, tl.minimum(first, low - 1), least)
                first = tl.maximum(first, least)
    return first, last, kept
