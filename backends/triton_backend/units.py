"""Masses as integers, whose sums do not depend on their order, and keys that order like floats."""

import triton
import triton.language as tl

UNITS = tl.constexpr(float(2**44))
LOWEST_KEY = tl.constexpr(-0x80000000)
HIGHEST_KEY = tl.constexpr(0x7FFFFFFF)
NO_KEY = tl.constexpr(-1)
"""The key of -0.0, which counts as 0.0."""
LOWEST_FINITE = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def in_units(mass):
    """A mass, relative to that of the row's largest logit, in units of 2**-44: int64."""
    return (mass * UNITS).to(tl.int64)


@triton.jit
def mass_of(logits, row_max, inverse):
    """The mass of logits in units, 0 where they are -inf."""
    return in_units(tl.exp((logits - row_max) * inverse))


@triton.jit
def log_of_units(units):
    """The logarithm of a mass in units: float32."""
    return tl.log(units.to(tl.float32) / UNITS)


@triton.jit
def as_key(value, KEY_SHIFT: tl.constexpr):
    """An int32 that orders like the float32, without its lowest bits, which must all be equal."""
    # Both zeros have the same key.
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits) >> KEY_SHIFT


@triton.jit
def from_key(key, KEY_SHIFT: tl.constexpr):
    """The float32 of an `as_key`."""
    bits = key.to(tl.int32) << KEY_SHIFT
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ((bits >> KEY_SHIFT) << KEY_SHIFT).to(tl.float32, bitcast=True)


@triton.jit
def highest_reaching(keys, weights, needed):
    """The largest key that, with all above it, weighs enough; the smallest if none does.

    `keys` are [N] int32. `weights` are [N] numbers; a key of weight 0 does not count. `needed` is a
    scalar float64.
    """
    low = tl.min(tl.where(weights > 0, keys, HIGHEST_KEY), 0).to(tl.int64)
    high = tl.max(tl.where(weights > 0, keys, LOWEST_KEY), 0).to(tl.int64) + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        weight = tl.sum(tl.where(keys >= middle.to(tl.int32), weights, 0), 0)
        enough = weight.to(tl.float64) >= needed
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return tl.min(tl.where((keys >= low.to(tl.int32)) & (weights > 0), keys, HIGHEST_KEY), 0)


@triton.jit
def level_reaching(
    keys, fewest, enough, row_max, inverse, KEY_SHIFT: tl.constexpr, MOST: tl.constexpr
):
    """The largest key that, with all above it, has enough mass, if it is among the MOST largest.

    `keys` are [N] int32; `fewest` and `enough` are scalars float64, bounds of the needed mass in
    units. Returns the key; whether it has enough; and whether it is the same for all masses within
    the bounds.
    """
    key = as_key(row_max, KEY_SHIFT) + 1
    amount = key.to(tl.int64) * 0
    latest = key.to(tl.int64) * 0
    levels = 0
    while (amount.to(tl.float64) < enough) & (levels < MOST):
        key = tl.max(tl.where(keys < key, keys, LOWEST_KEY), 0)
        number = tl.sum((keys == key).to(tl.int64), 0)
        own = mass_of(from_key(key, KEY_SHIFT), row_max, inverse)
        latest = tl.where(key > LOWEST_KEY, number * own, 0)
        amount += latest
        levels += 1
    reached = amount.to(tl.float64) >= enough
    return key, reached, reached & ((amount - latest).to(tl.float64) < fewest)
