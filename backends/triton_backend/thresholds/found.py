"""Turns a row's counts into its threshold, or into two keys around it for another round."""

import triton
import triton.language as tl

from .. import records
from ..queue import close_row, queue_again
from ..records import blocks_of, store_law, words_of
from ..rows import row_recipe
from ..units import HIGHEST_KEY, LOWEST_FINITE, NO_KEY, as_key, from_key, log_of_units, mass_of
from .bins import BINS, half_bins, numbers_of
from .levels import AT_LEAST, AT_MOST, LIKELY, NUMBER, Span, bin_groups, find_bin
from .touched import odd_masses_of, odd_numbers_of

NOTHING, HALVES, BETWEEN, GUESSED = map(tl.constexpr, range(4))
"""What is counted in a row, besides the mass from the lower end of its bracket on. `GUESSED` is
like `BETWEEN`, but the threshold may be outside the bracket."""

GUESS = tl.constexpr(1 << 14)
"""How far, in keys, a threshold may be from its guess: a quarter of a half. Then most bins hold one
logit."""
FEWEST = tl.constexpr(64)
"""The fewest logits of a half that are taken to be spread evenly."""


@triton.jit
def start_round(call, row, counted, low, high, least, search):
    """Prepare a row for counting between two keys.

    `least` is a lower bound of its threshold: the lower key, or less where that is a guess.

    `search`: whether it is for top-p, the mass that top-p refers to, and how many logits are above
    the upper key.
    """
    by_mass, whole, above = search
    words = words_of(call, blocks_of(call, row.slot), tl.int32)
    tl.store(words + records.COUNTED, counted)
    tl.store(words + records.ODD_BITS, 0)
    tl.store(words + records.LOW, tl.where(low == NO_KEY, 0, low))
    tl.store(words + records.HIGH, tl.where(high == NO_KEY, NO_KEY - 1, high))
    tl.store(words + records.LEAST, least)
    tl.store(words + records.BY_MASS, by_mass.to(tl.int32))
    tl.store(words + records.ABOVE_NUMBER, above.to(tl.int32))
    tl.store(words + records.ARRIVALS, 0)
    masses = words_of(call, blocks_of(call, row.slot), tl.int64)
    tl.store(masses + records.MASS, whole * 0)
    tl.store(masses + records.WHOLE, whole)
    place = tl.arange(0, BINS)
    tl.store(numbers_of(call, row) + place, 0)
    if call.scratch.odd is not None and (counted == HALVES) & row.adjusts:
        tl.store(odd_masses_of(call, row) + place, tl.zeros([BINS], tl.int64))
        tl.store(odd_numbers_of(call, row) + place, 0)


@triton.jit
def find_threshold(call, row):
    """Evaluate the counts: store the row's law, or start another round."""
    # Loaded together, because one load takes as long as all.
    blocks = blocks_of(call, row.slot)
    words = words_of(call, blocks, tl.int32)
    of_bracket = records.COUNTED, records.LOW, records.HIGH, records.LEAST
    of_counts = records.BY_MASS, records.ABOVE_NUMBER, records.ODD_BITS
    counted, low, high, least = [tl.load(words + n, cache_modifier=".cg") for n in of_bracket]
    by_mass, above, odd_bits = [tl.load(words + n, cache_modifier=".cg") for n in of_counts]
    masses = words_of(call, blocks, tl.int64)
    mass = tl.load(masses + records.MASS, cache_modifier=".cg")
    whole = tl.load(masses + records.WHOLE, cache_modifier=".cg")
    row_max = tl.load(words_of(call, blocks, tl.float32) + records.ROW_MAX, cache_modifier=".cg")
    recipe = row_recipe(call, row)
    if (counted == HALVES) & (from_key(low, 0) == LOWEST_FINITE):
        # All logits that are not cut were counted, and not weighed again.
        mass = whole + 0
    if counted == NOTHING:
        _close(call, row, mass, low)
    else:
        span = Span(counted == HALVES, low, high, odd_bits == 0, mass, row_max, recipe.inverse)
        search = by_mass != 0, whole, above.to(tl.int64)
        _find(call, row, recipe, span, least, *search, counted == GUESSED)


@triton.jit
def _close(call, row, kept, threshold):
    store_law(call, row, log_of_units(kept), from_key(threshold, 0), 0.0)
    close_row(call)


@triton.jit
def _find(call, row, recipe, span, least, by_mass, whole, above, guessed):
    words = words_of(call, blocks_of(call, row.slot), tl.int32)
    groups = bin_groups(call, row, span)
    _groups, sums = groups
    # Within top-k's bracket top-p's threshold is not searched yet.
    holds_all = span.by_halves | by_mass
    counted = span.low * 0 + BETWEEN
    kept = span.mass + 0
    begin = span.low + 0
    end = span.high + 0
    is_open = by_mass
    # In bfloat16 halves tell all.
    GUESSES: tl.constexpr = (
        call.variant.masses and call.variant.key_shift < 16 and call.scratch.touched is None
    )
    if call.variant.ranks and by_mass == 0:
        if above + sums[0] < recipe.top_k:
            # All of these few are kept, unless the threshold was expected too high.
            is_open = span.low > least
            counted = tl.where(is_open, HALVES, BETWEEN)
            begin = least + 0
            # Block masses miss what is below the expected threshold.
            tl.store(words + records.EXACT, 0)
        else:
            bin_ = find_bin(call, row, span, groups, above, recipe.top_k.to(tl.int64), NUMBER)
            is_open = (bin_.known & bin_.precise) == 0
            begin = tl.maximum(bin_.begin, begin)
            kept = bin_.kept
            if is_open:
                counted = tl.where(bin_.known & (recipe.top_p == 1.0), NOTHING, BETWEEN)
                end = tl.minimum(bin_.last, end)
                above += bin_.above
                if GUESSES and span.by_halves & (recipe.top_p < 1.0):
                    surplus = above + _number_in(call, row, bin_) - recipe.top_k
                    each = mass_of(from_key(bin_.begin, 0), span.row_max, span.inverse)
                    likely = recipe.top_p.to(tl.float64) * (kept - surplus * each)
                    guess = _guess(call, row, span, groups, likely.to(tl.int64))
                    tl.store(words + records.GUESS_LOW, guess[0])
                    tl.store(words + records.GUESS_HIGH, guess[1])
        if is_open == 0:
            by_mass = recipe.top_p < 1.0
            is_open = by_mass
            end = as_key(span.row_max, 0)
            whole = kept + 0
    low = begin + 0
    if call.variant.masses:
        if by_mass & holds_all:
            if span.by_halves:
                whole = kept + 0
            needed = tl.ceil(recipe.top_p.to(tl.float64) * whole.to(tl.float64)).to(tl.int64)
            if (span.low > least) & (span.mass < needed):
                # The threshold is below what was weighed, and nothing was counted there.
                begin = least + 0
                end = span.low - 1
                low = begin + 0
            elif guessed & (span.mass - sums[1] >= needed):
                # It may be above what was counted.
                end = as_key(span.row_max, 0)
            else:
                bin_ = find_bin(call, row, span, groups, 0, needed, AT_LEAST)
                begin = tl.maximum(bin_.begin, begin)
                low = begin + 0
                kept = bin_.kept
                is_open = (bin_.known & bin_.precise) == 0
                counted = tl.where(bin_.known, NOTHING, BETWEEN)
                if bin_.known == 0:
                    higher = find_bin(call, row, span, groups, 0, needed, AT_MOST)
                    end = tl.maximum(tl.minimum(higher.last, span.high), begin)
                    left = end.to(tl.int64) - begin.to(tl.int64)
                    if 2 * left > span.high.to(tl.int64) - span.low.to(tl.int64):
                        # Bounds of masses exclude too few bins. The mass of the upper half tells
                        # in which half the threshold is.
                        low = (end.to(tl.int64) - left // 2).to(tl.int32)
                    if GUESSES and span.by_halves:
                        guess = _guess(call, row, span, groups, needed)
                        low, end, counted = _guessed(guess, low, begin, end)
        elif GUESSES and call.variant.ranks and by_mass & (span.by_halves == 0):
            of_guess = records.GUESS_LOW, records.GUESS_HIGH
            stored = [tl.load(words + n, cache_modifier=".cg") for n in of_guess]
            low, end, counted = _guessed(stored, low, begin, end)
    if is_open:
        start_round(call, row, counted, low, end, begin, (by_mass, whole, above))
        queue_again(call, row.slot)
    else:
        _close(call, row, kept, begin)


@triton.jit
def _guess(call, row, span, groups, needed):
    """Keys between which top-p's threshold is likely to be; the first is larger if none are.

    It is guessed by the share of its half's mass that is needed, unless the half has few logits.
    """
    likely = find_bin(call, row, span, groups, 0, needed, LIKELY)
    number = _number_in(call, row, likely)
    each = mass_of(from_key(likely.begin, 0), span.row_max, span.inverse)
    share = (likely.kept - needed).to(tl.float32) / tl.maximum(number * each, 1).to(tl.float32)
    key = likely.begin + (tl.minimum(tl.maximum(share, 0.0), 1.0) * 0x10000).to(tl.int32)
    are_few = number < FEWEST
    low = tl.where(are_few, likely.begin, key - GUESS)
    high = tl.where(are_few, likely.last, key + GUESS)
    # Some bins hold more than a half.
    return tl.where(likely.last - likely.begin <= 0xFFFF, low, HIGHEST_KEY), high


@triton.jit
def _number_in(call, row, bin_):
    """How many logits a bin of halves has."""
    place = half_bins(from_key(bin_.begin, 0))
    return tl.load(numbers_of(call, row) + place, cache_modifier=".cg").to(tl.int64)


@triton.jit
def _guessed(guess, low, begin, end):
    """Where to count for a guess within known keys, and what; from `low` on if there is none."""
    first, last = guess
    exists = first <= last
    first = tl.minimum(tl.maximum(first, begin), end)
    last = tl.maximum(tl.minimum(last, end), first)
    counted = tl.where(exists, GUESSED, BETWEEN)
    return tl.where(exists, first, low), tl.where(exists, last, end), counted
