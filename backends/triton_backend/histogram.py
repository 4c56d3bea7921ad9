"""Stage 2: counts of a row's logits, made by many programs.

Where few keys lie between a bound and the row's largest logit, each has its own count. Otherwise
logits are counted and weighed in bins of equal width. This module refuses to count what the bound
rules out, and to conclude anything: see `counted_threshold`.
"""

import triton
import triton.language as tl

from .candidates import CAPACITY
from .mass_units import as_short_key, mass_of
from .race import NEVER
from .workspace import COUNT_COPIES

COPIES = tl.constexpr(COUNT_COPIES)
BINS = tl.constexpr(CAPACITY.value // 4)
"""Of equal width; a mass takes two words and a count one."""


@triton.jit
def keys_are_few(bound, row_max, KEY_SHIFT: tl.constexpr):
    """Whether each key from a bound to the row's largest logit has a count of its own."""
    low = as_short_key(bound, KEY_SHIFT).to(tl.int64)
    return as_short_key(row_max, KEY_SHIFT).to(tl.int64) - low < CAPACITY


@triton.jit
def bin_scale(largest, bound, row_max):
    """Half of where bins of equal width begin, and how many there are to two logits.

    Args:
        largest: [WIDTH], per block the largest logit.
        bound, row_max: scalars.

    In halves, as the difference of two logits may be infinite. What is below is in the first bin.
    """
    lowest = tl.min(tl.where(largest > NEVER, largest, row_max), 0)
    # Few logits are as far below the smallest of these as that is below the largest.
    origin = tl.maximum(bound * 0.5, lowest - row_max * 0.5)
    # Of zeros with different signs the difference may be -0, whose inverse is -inf.
    width = tl.abs(row_max * 0.5 - origin)
    return origin, tl.minimum(1.0 / width * (BINS - 1), 1e38)


@triton.jit
def bin_of(logits, origin, scale):
    """The bins of logits; never less for a larger one."""
    place = (logits * 0.5 - origin) * scale
    return tl.minimum(tl.maximum(place, 0.0), BINS - 1.0).to(tl.int32)


@triton.jit
def row_maxima(out, num_blocks, WIDTH: tl.constexpr):
    """Per block the largest logit."""
    block = tl.arange(0, WIDTH)
    return tl.load(out + block, mask=block < num_blocks, other=NEVER)


@triton.jit
def count_logits(logits, counts, bound, row_max, inverse, origin, scale, KEY_SHIFT: tl.constexpr):
    """Add logits that reach a bound to counts.

    Args:
        logits: any shape.
        counts: room for CAPACITY words.
        bound, row_max, inverse: scalars.
        origin, scale: see `bin_scale`; unused where keys are few.
        KEY_SHIFT: see `as_short_key`.
    """
    numbers = counts.to(tl.pointer_type(tl.int32), bitcast=True)
    reached = (logits >= bound) & (logits > NEVER)
    if keys_are_few(bound, row_max, KEY_SHIFT):
        key = as_short_key(logits, KEY_SHIFT) - as_short_key(bound, KEY_SHIFT)
        tl.atomic_add(numbers + key, 1, mask=reached, sem="relaxed")
    else:
        masses = counts.to(tl.pointer_type(tl.int64), bitcast=True)
        bins = bin_of(logits, origin, scale)
        units = mass_of(logits, row_max, inverse)
        tl.atomic_add(masses + bins, units, mask=reached, sem="relaxed")
        tl.atomic_add(numbers + 2 * BINS + bins, 1, mask=reached, sem="relaxed")


@triton.jit
def last_enough(amounts, needed):
    """The last place that, with all behind it, has so much; the first if none has."""
    enough = tl.cumsum(amounts, 0, reverse=True).to(tl.float64) >= needed
    return tl.max(tl.where(enough, tl.arange(0, amounts.shape[0]), 0), 0)


@triton.jit
def summed(places, copies, STRIDE: tl.constexpr):
    """What several copies hold together."""
    amounts = tl.load(places)
    for copy in tl.static_range(1, COPIES):
        amounts += tl.load(places + copy * STRIDE, mask=copy < copies, other=0)
    return amounts
