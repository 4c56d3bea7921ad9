"""Stage 2: a row's threshold from its largest logits.

Where a block's mass leaves no room for a second logit that reaches the threshold, its largest one
tells all. This module refuses to read a logit.
"""

import triton
import triton.language as tl

from .mass_units import as_short_key, from_short_key, mass_of
from .race import NEVER

MOST_LEVELS = tl.constexpr(16)
"""So many of a row's largest logits are tried; a nucleus of a few peaks has fewer."""

LOOSE = tl.constexpr(1e-5)
"""More than the relative error of a block's mass in float32."""


@triton.jit
def peak_of_rank(largest, keys, rank, KEY_SHIFT: tl.constexpr):
    """The rank-th largest of the largest logits of blocks; -inf if there are not so many.

    Args:
        largest, keys: [WIDTH], per block the largest logit and its key.
        rank: scalar.
        KEY_SHIFT: see `as_short_key`.
    """
    peak = rank * 0.0 + NEVER
    finite = largest > NEVER
    if tl.sum(finite.to(tl.int32), 0) >= rank:
        low = tl.min(tl.where(finite, keys, 0x7FFFFFFF), 0).to(tl.int64)
        high = tl.max(keys, 0).to(tl.int64) + 1
        while high - low > 1:
            middle = low + (high - low) // 2
            reached = tl.sum((keys >= middle.to(tl.int32)).to(tl.int32), 0)
            low = tl.where(reached >= rank, middle, low)
            high = tl.where(reached < rank, middle, high)
            high = tl.where(reached == rank, middle + 1, high)
        lowest = tl.min(tl.where(keys >= low.to(tl.int32), keys, 0x7FFFFFFF), 0)
        peak = from_short_key(lowest, KEY_SHIFT)
    return peak


@triton.jit
def least_mass(largest, own, peak, rank, least_logit, row_max, inverse):
    """The least mass that min-p and top-k can leave, in units: as many largest logits have it.

    Args:
        largest: [WIDTH], per block the largest logit.
        own: [WIDTH] int64, the mass of that logit, in units.
        peak: scalar, see `peak_of_rank`; -inf where top-k does not cut.
        rank: scalar, top_k.
        least_logit: scalar, of min-p; -inf where that does not cut.
        row_max, inverse: scalars, the row's largest logit and 1 / temperature.
    """
    above = (largest > peak) & (largest >= least_logit)
    least = tl.sum(tl.where(above, own, 0), 0)
    if (peak > NEVER) & (peak >= least_logit):
        others = rank - tl.sum(above.to(tl.int32), 0)
        least += others.to(tl.int64) * mass_of(peak, row_max, inverse)
    return least


@triton.jit
def largest_with_enough(
    keys, read, fewest, enough, by_mass, row_max, inverse, KEY_SHIFT: tl.constexpr
):
    """The largest logit that, with all above it, is so many or has so much mass.

    Args:
        keys: [N], keys of logits.
        read: four [M, QUARTER], keys of more of them, or None.
        fewest, enough: scalars float64, least and greatest of what is needed.
        by_mass: whether that is a mass in units, or a number of logits.
        row_max, inverse: as in `least_mass`.
        KEY_SHIFT: see `as_short_key`.

    Returns:
        The logit; whether it has enough; and whether it is the same for all needs in between.
    """
    key = as_short_key(row_max, KEY_SHIFT) + 1
    amount = key.to(tl.int64) * 0
    latest = key.to(tl.int64) * 0
    levels = 0
    while (amount.to(tl.float64) < enough) & (levels < MOST_LEVELS):
        above = key
        key = tl.max(below(keys, above), 0)
        if read is not None:
            first, second, third, fourth = read
            highest = tl.maximum(
                tl.maximum(below(first, above), below(second, above)),
                tl.maximum(below(third, above), below(fourth, above)),
            )
            key = tl.maximum(key, tl.max(tl.max(highest, 1), 0))
        number = tl.sum((keys == key).to(tl.int32), 0)
        if read is not None:
            equal = (first == key).to(tl.int32) + (second == key).to(tl.int32)
            equal += (third == key).to(tl.int32) + (fourth == key).to(tl.int32)
            number += tl.sum(tl.sum(equal, 1), 0)
        logit = from_short_key(key, KEY_SHIFT)
        latest = number.to(tl.int64) * tl.where(by_mass, mass_of(logit, row_max, inverse), 1)
        amount += latest
        levels += 1
    reached = amount.to(tl.float64) >= enough
    # Not a name of its own in the loop: Triton would not carry one that was `amount` before.
    agreed = reached & ((amount - latest).to(tl.float64) < fewest)
    return from_short_key(key, KEY_SHIFT), reached, agreed


@triton.jit
def below(keys, key):
    """Those keys that are below another; others become the least there is."""
    return tl.where(keys < key, keys, -0x80000000)


@triton.jit
def beside_largest(largest, masses, row_max, inverse):
    """At most so much mass has each block without its largest logit: [WIDTH].

    Args:
        largest, masses: [WIDTH], per block the largest logit and the mass relative to it.
        row_max, inverse: scalars.
    """
    return (masses - 1.0 + masses * LOOSE) * tl.exp((largest - row_max) * inverse)


@triton.jit
def may_hold_two(largest, masses, threshold, row_max, inverse):
    """Which blocks have mass enough for a second logit that reaches a threshold: [WIDTH].

    Arguments as in `beside_largest`.
    """
    rest = beside_largest(largest, masses, row_max, inverse)
    return (largest >= threshold) & (rest >= tl.exp((threshold - row_max) * inverse))
