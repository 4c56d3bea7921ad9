"""Stage 2: what block statistics alone prove about a row's threshold.

Only blocks whose largest logit reaches the bound need to be read. This module refuses to read a
logit.
"""

import triton
import triton.language as tl

from .mass_units import in_units, mass_of
from .race import BLOCK, NEVER

ROUNDS = tl.constexpr(10)
CLOSE = tl.constexpr(0.05)
"""Nats, to which a bound is searched for."""


@triton.jit
def mass_bound(largest, masses, row_max, inverse, cut_mass, vocab_size):
    """A logit below which there is certainly no more than so much mass.

    Args:
        largest, masses: [WIDTH], per block the largest logit and all mass, relative to the row's
            largest logit.
        row_max, inverse: scalars, the row's largest logit and 1 / temperature.
        cut_mass: scalar, in the same units as masses.
        vocab_size: scalar float32.

    Below a logit, a block holds at most its mass: without its largest logit's, if that is not
    below; and no more than 511 tokens that are just below.
    """
    beside_largest = masses - tl.exp((largest - row_max) * inverse)
    start = row_max + tl.log(cut_mass / vocab_size) / inverse
    high = row_max
    rounds = 0
    while ((high - start) * inverse > CLOSE) & (rounds < ROUNDS):
        rounds += 1
        guess = start + (high - start) * 0.5
        just_below = (BLOCK - 1.0) * tl.exp((guess - row_max) * inverse)
        below = tl.minimum(beside_largest, just_below)
        below = in_units(tl.where(largest < guess, masses, below))
        holds = tl.sum(below, 0) <= in_units(cut_mass)
        start = tl.where(holds, guess, start)
        high = tl.where(holds, high, guess)
    return tl.minimum(start, row_max)


@triton.jit
def rank_bound(largest, row_max, inverse, top_k):
    """A logit that is certainly not above the k-th largest: k blocks reach it; -inf if too few."""
    finite = largest > NEVER
    start = tl.min(tl.where(finite, largest, row_max), 0)
    enough = tl.sum(finite.to(tl.int32), 0) >= top_k
    high = row_max
    rounds = 0
    while ((high - start) * inverse > CLOSE) & (rounds < ROUNDS):
        rounds += 1
        guess = start + (high - start) * 0.5
        holds = tl.sum((largest >= guess).to(tl.int32), 0) >= top_k
        start = tl.where(holds, guess, start)
        high = tl.where(holds, high, guess)
    return tl.where(enough, tl.minimum(start, row_max), NEVER)


@triton.jit
def next_mass_limits(largest, masses, bound, row_max, inverse, num_tokens, beside):
    """Least and greatest mass that so many most likely tokens below a bound can have, in units.

    Args:
        largest, masses, row_max, inverse: as in `mass_bound`.
        bound, num_tokens: scalars.
        beside: the mass below the bound in blocks that reach it, in units.

    At any level, the maxima above it belong to different tokens; and no token above it lies outside
    the blocks whose maxima are above it.
    """
    below_bound = (largest < bound) & (largest > NEVER)
    units = tl.where(below_bound, in_units(masses), 0)
    least = tl.sum(units, 0) * 0
    most = beside + tl.sum(units, 0)
    start = tl.min(tl.where(below_bound, largest, bound), 0)
    high = bound
    rounds = 0
    while ((high - start) * inverse > CLOSE) & (rounds < ROUNDS):
        rounds += 1
        level = start + (high - start) * 0.5
        above = below_bound & (largest >= level)
        fits = tl.sum(above.to(tl.int32), 0) <= num_tokens
        peaks = tl.sum(tl.where(above, mass_of(largest, row_max, inverse), 0), 0)
        least = tl.where(fits, tl.maximum(least, peaks), least)
        rest = num_tokens.to(tl.int64) * mass_of(level, row_max, inverse)
        most = tl.minimum(most, beside + tl.sum(tl.where(above, units, 0), 0) + rest)
        start = tl.where(fits, start, level)
        high = tl.where(fits, level, high)
    return least, most
