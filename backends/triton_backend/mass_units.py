"""Stage 2: masses as integers, so that sums do not depend on their order, and keys of floats.

This module refuses to read memory.
"""

import triton
import triton.language as tl

UNITS = tl.constexpr(float(2**44))


@triton.jit
def in_units(mass):
    """A mass relative to that of a row's largest logit, in units of 2**-44: int64."""
    return (mass * UNITS).to(tl.int64)


@triton.jit
def mass_of(logits, row_max, inverse):
    """The mass of logits in such units, 0 where they are -inf."""
    return in_units(tl.exp((logits - row_max) * inverse))


@triton.jit
def as_key(value):
    """An int64 that orders like the float32."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)


@triton.jit
def as_short_key(value, KEY_SHIFT: tl.constexpr):
    """An int32 that orders like the float32; so many low bits tell no two of them apart."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits) >> KEY_SHIFT


@triton.jit
def from_key(key):
    """The float32 of a key."""
    bits = key.to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@triton.jit
def from_short_key(key, KEY_SHIFT: tl.constexpr):
    """The float32 of an `as_short_key` of a logit."""
    bits = key.to(tl.int32) << KEY_SHIFT
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ((bits >> KEY_SHIFT) << KEY_SHIFT).to(tl.float32, bitcast=True)
