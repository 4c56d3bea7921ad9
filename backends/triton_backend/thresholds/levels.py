"""Evaluates the counts of a row: the amount in each bin, and the bin where enough is reached."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from ..assembly import INTERPRETED
from ..units import NO_KEY, from_key, mass_of
from .bins import BELOW, BINS, SIGN, bin_shift, numbers_of
from .touched import MOST_NEAR, odd_masses_of, odd_numbers_of, odd_reaching

EACH = tl.constexpr(32)
"""How many neighbouring bins form a group; groups are searched first, then bins of one group."""

AT_ONCE = tl.constexpr(8)
"""How many of these a thread has registers for."""

PRECISE = tl.constexpr(2.0**-19)
"""The largest relative uncertainty of a kept mass."""

NUMBER, AT_LEAST, LIKELY, AT_MOST = map(tl.constexpr, range(4))
"""The amount to reach: a number of logits; or a mass, surely, likely or possibly."""


class Span(NamedTuple):
    """What was counted in a row."""

    by_halves: Any
    """Whether bins are of halves; else of keys between the next two."""
    low: Any
    """A key below which nothing was counted."""
    high: Any
    exact: Any
    """Whether all logits are bfloat16, except a few odd ones whose masses are known."""
    mass: Any
    """The mass of all logits from the lower key on, in units."""
    row_max: Any
    inverse: Any
    """1 / temperature."""


class Found(NamedTuple):
    """The bin at which the needed amount is reached from above; else the lowest one."""

    known: Any
    """Whether it is known which logits of the bin are needed."""
    begin: Any
    """The key from which on they are needed, if known; else the bin's least key."""
    last: Any
    """The bin's greatest key."""
    kept: Any
    precise: Any
    """The mass of needed logits, and whether its uncertainty is small."""
    above: Any
    """How many logits are above the bin."""


@triton.jit
def bin_keys(span, place):
    """The least key of each bin, the key of its even logits, and the greatest key.

    Bins rise with their places. Also whether even and odd logits are all that a bin can hold.
    """
    positive = place >= SIGN
    in_sign = tl.where(positive, place - SIGN, SIGN - 1 - place)
    smallest = tl.where(in_sign > 1, BELOW + in_sign - 1, in_sign) << 16
    largest = tl.where(in_sign == 1, BELOW << 16, smallest) + 0xFFFF
    largest = tl.where(in_sign == SIGN - 1, 0x7F7FFFFF, largest)
    first = tl.where(positive, smallest, NO_KEY - largest)
    # Zero's bin holds what is beside it on both sides.
    first = tl.where(place == SIGN, NO_KEY - 0xFFFF, first)
    last = tl.where(positive, largest, NO_KEY - smallest)
    even = tl.where(positive, smallest, tl.where(in_sign == 0, 0, last))
    is_inner = (in_sign != 1) & (in_sign < SIGN - 1)
    if span.by_halves == 0:
        shift = bin_shift(span.low, span.high)
        # Keys after the last bin would overflow.
        last_place = (span.high.to(tl.int64) - span.low.to(tl.int64)) >> shift
        first = span.low + (tl.minimum(place, last_place.to(tl.int32)) << shift)
        last = first + ((place * 0 + 1) << shift) - 1
        even = first
    return first, even, last, is_inner


@triton.jit
def bin_masses(call, row, span, place, number, WHAT: tl.constexpr):
    """The masses of bins with these numbers of logits, AT_LEAST or AT_MOST: int64."""
    first, even, last, is_inner = bin_keys(span, place)
    key = tl.maximum(first, span.low) if WHAT == AT_LEAST else tl.minimum(last, span.high)
    is_even = span.by_halves & span.exact & is_inner
    logit = from_key(tl.where(is_even, even, key), 0)
    masses = number.to(tl.int64) * mass_of(logit, span.row_max, span.inverse)
    if call.scratch.odd is not None:
        known = is_even & (number > 0) & row.adjusts
        more = odd_masses_of(call, row) + place
        masses += tl.load(more, mask=known, other=0, cache_modifier=".cg")
    return masses


@triton.jit
def bin_groups(call, row, span):
    """The number of logits in each group of bins, and bounds of its mass; and the sums of all."""
    GROUPS: tl.constexpr = BINS // EACH
    group = tl.arange(0, GROUPS)
    first = group[:, None] * EACH + tl.arange(0, AT_ONCE)[None, :]
    numbers = tl.zeros([GROUPS], tl.int32)
    least = tl.zeros([GROUPS], tl.int64)
    most = tl.zeros([GROUPS], tl.int64)
    are_vague = (span.by_halves == 0) | (span.exact == 0)
    for step in range(EACH // AT_ONCE):
        place = first + step * AT_ONCE
        number = tl.load(numbers_of(call, row) + place, cache_modifier=".cg")
        numbers += tl.sum(number, 1)
        least += tl.sum(bin_masses(call, row, span, place, number, AT_LEAST), 1)
        if are_vague:
            most += tl.sum(bin_masses(call, row, span, place, number, AT_MOST), 1)
    if are_vague == 0:
        # Only four bins hold several values: the lowest, the highest, and those beside zero's.
        place = tl.arange(0, 4)
        place = tl.where(place < 2, place * (SIGN - 2), SIGN + 1 + (place - 2) * (SIGN - 2))
        number = tl.load(numbers_of(call, row) + place, cache_modifier=".cg")
        more = bin_masses(call, row, span, place, number, AT_MOST)
        more -= bin_masses(call, row, span, place, number, AT_LEAST)
        most = least + tl.sum(tl.where(group[:, None] == (place // EACH)[None, :], more, 0), 1)
    return (numbers, least, most), _summed((numbers, least, most), group >= 0)


@triton.jit
def find_bin(call, row, span, groups, above, needed, WHAT: tl.constexpr):
    """Find the highest bin that, with all bins above it, holds the needed amount.

    Groups are searched first, then the bins of one group. Bounds of masses come from the bins above
    or, where that is narrower, from the whole mass minus the bins below.

    `groups` are those of `bin_groups`. Scalars int64: `above`, the logits above all bins; `needed`,
    a number of logits if WHAT is NUMBER, else a mass in units.
    """
    groups, sums = groups
    # The whole mass is known, so bins below may bound the kept mass better than those above.
    by_rest = (span.by_halves == 0) | (needed > span.mass - needed)
    whole = _asked(sums, by_rest, WHAT)
    if WHAT != NUMBER:
        above = tl.where(by_rest, span.mass - whole, 0)
    found = _lowest_reaching(_asked(groups, by_rest, WHAT), needed - above)
    higher = _summed(groups, tl.arange(0, BINS // EACH) > found)
    weight = above + _asked(higher, by_rest, WHAT)
    place = tl.arange(0, EACH)
    bins = found * EACH + place
    numbers = tl.load(numbers_of(call, row) + bins, cache_modifier=".cg")
    at_least = bin_masses(call, row, span, bins, numbers, AT_LEAST)
    inside = numbers, at_least, bin_masses(call, row, span, bins, numbers, AT_MOST)
    here = _lowest_reaching(_asked(inside, by_rest, WHAT), needed - weight)
    further = _summed(inside, place > here)
    number, own_least, own_most = _summed(inside, place == here)
    own = _asked((number, own_least, own_most), by_rest, WHAT)
    weight += _asked(further, by_rest, WHAT)
    higher_least = higher[1] + further[1]
    higher_most = higher[2] + further[2]
    _least, heaviest = _bounds(span, sums, higher_least, higher_most)
    odd_number = number * 0
    odd_mass = own_least * 0
    if call.scratch.odd is not None and span.by_halves & span.exact & row.adjusts:
        odd_number = odd_numbers_of(call, row) + found * EACH + here
        odd_number = tl.load(odd_number, cache_modifier=".cg")
        # The bin's other logits are even.
        _first, even, _last, _is_inner = bin_keys(span, found * EACH + here)
        each = mass_of(from_key(even, 0), span.row_max, span.inverse)
        odd_mass = own_least - (number - odd_number).to(tl.int64) * each
    odd = odd_mass
    if WHAT == NUMBER:
        odd = odd_number.to(tl.int64)
        heaviest = weight
    first, even, last, is_inner = bin_keys(span, found * EACH + here)
    is_narrow = (bin_shift(span.low, span.high) <= call.variant.key_shift) | (number == 1)
    # Odd logits have larger magnitudes than even ones, but those beside 0 have any sign.
    is_inner = is_inner & ((odd_number == 0) | (even != 0))
    known = tl.where(span.by_halves, span.exact & is_inner, is_narrow)
    odd_are_above = even >= 0
    upper = tl.where(odd_are_above, odd, own - odd)
    in_upper = weight + upper >= needed
    in_lower = heaviest + upper < needed
    in_odd = tl.where(odd_are_above, in_upper, in_lower)
    is_all = weight + own < needed
    known = known & (heaviest < needed) & (in_upper | in_lower)
    known = known & ((in_odd == 0) | (odd_number <= MOST_NEAR))
    # Rounding cannot leave a single key open.
    known = known | ((span.by_halves == 0) & (span.low == span.high))
    begin = tl.where(in_odd, tl.where(odd_are_above, even + 1, first), even)
    begin = tl.where(known, begin, first)
    lost = tl.where(in_odd, own_least - odd_mass, 0)
    lost = tl.where(odd_are_above, lost, tl.where(in_odd, 0, odd_mass))
    if call.scratch.odd is not None and WHAT != AT_MOST:
        if known & in_odd & (odd_number > 1) & (is_all == 0):
            rest = needed - weight - tl.where(odd_are_above, 0, own - odd)
            begin, below = odd_reaching(call, row, span, first, last, rest, WHAT == NUMBER)
            lost += below
    higher_least += own_least - lost
    higher_most += own_most - lost
    at_least, at_most = _bounds(span, sums, higher_least, higher_most)
    unknown = at_most - at_least
    precise = unknown.to(tl.float64) <= at_most.to(tl.float64) * PRECISE
    number = (higher[0] + further[0]).to(tl.int64)
    return Found(known, begin, last, at_least + unknown // 2, precise, number)


@triton.jit
def _asked(amounts, by_rest, WHAT: tl.constexpr):
    """The amounts that WHAT asks for; with `by_rest` those of bins below, so bounds swap."""
    numbers, at_least, at_most = amounts
    if WHAT == NUMBER:
        asked = numbers.to(tl.int64)
    elif WHAT == AT_LEAST:
        asked = tl.where(by_rest, at_most, at_least)
    elif WHAT == LIKELY:
        asked = (at_least + at_most) // 2
    else:
        asked = tl.where(by_rest, at_least, at_most)
    return asked


@triton.jit
def _bounds(span, sums, at_least, at_most):
    """Bounds of the mass from some bin on, by these bins or, if that is narrower, by the rest."""
    _number, whole_least, whole_most = sums
    rest_least = span.mass - (whole_most - at_most)
    rest_most = span.mass - (whole_least - at_least)
    by_rest = (span.by_halves == 0) | (rest_most - rest_least < at_most - at_least)
    return tl.where(by_rest, rest_least, at_least), tl.where(by_rest, rest_most, at_most)


@triton.jit
def _lowest_reaching(weights, needed):
    """The last place from which on the needed amount is reached; else the first place.

    A place of weight 0 may hold logits: their least mass may be 0.
    """
    so_far = tl.cumsum(weights, 0, reverse=True)
    return tl.max(tl.where(so_far >= needed, tl.arange(0, weights.shape[0]), 0), 0)


@triton.jit
def _summed(amounts, where):
    """Three sums at once, so that warps synchronise once; the interpreter sums one by one."""
    first, second, third = amounts
    first = tl.where(where, first, 0)
    second = tl.where(where, second, 0)
    third = tl.where(where, third, 0)
    if INTERPRETED:
        sums = tl.sum(first, 0), tl.sum(second, 0), tl.sum(third, 0)
    else:
        sums = tl.reduce((first, second, third), 0, _added)
    return sums


@triton.jit
def _added(first, second, third, fourth, fifth, sixth):
    return first + fourth, second + fifth, third + sixth
