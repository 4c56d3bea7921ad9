"""Counts a row's logits in bins: by the upper half of float32, or by keys between two others.

Each upper half is one bfloat16 value. A program counts in shared memory, for which Triton has no
name, in a few lines of assembly; in the interpreter it counts in the row's bins.
"""

import triton
import triton.language as tl

from ..random_bits import INTERPRETED
from ..units import LOWEST_FINITE, as_key, from_key, mass_of

SIGN = tl.constexpr(2048)
"""Bins of halves of one sign: 0, all below 2**-10, one for each magnitude, and all from 63 on."""
BINS = tl.constexpr(2 * SIGN.value)
"""Bins of halves, from the lowest to the highest; or of equally many neighbouring keys each."""

BELOW = tl.constexpr(((127 - 10) << 7) - 1)
"""The half before 2**-10's."""
BEYOND = tl.constexpr(BELOW.value + SIGN.value - 2)

CHUNK = tl.constexpr(1024)
"""How many numbers a program adds up at once."""

OWN_BYTES = tl.constexpr(4 * BINS.value + 4)
"""The bytes of a program's own numbers; the last number takes what is not to be counted."""
RESERVE = tl.constexpr(f"{{ .shared .align 16 .b8 bins[{OWN_BYTES.value}]; mov.u32 $0, bins; }}")
SET_ZERO = tl.constexpr(
    "{ .reg .b32 no; mov.b32 no, 0; st.shared.v4.b32 [$1], {no, no, no, no}; mov.b32 $0, 0; }"
)
LOAD = tl.constexpr("ld.shared.b32 $0, [$1];")
_COUNT_EACH = """
    @!is_{n} bra next_{n};
    add.f32 logit, ${logit}, 0f00000000;
    mov.b32 place, logit;
    shr.s32 other, place, 31;
    and.b32 other, other, 0x7FFFFFFF;
    xor.b32 place, place, other;
    sub.s32 place, place, $16;
    shr.u32 place, place, $20;
    bfe.u32 other, place, 5, 5;
    xor.b32 place, place, other;
    xor.b32 place, place, {sign};
    mad.lo.u32 place, place, 4, $24;
    red.shared.add.u32 [place], 1;
    next_{n}:"""
COUNT_KEYS = tl.constexpr(
    """{
    .reg .pred is, is_0, is_1, is_2, is_3; .reg .b32 place, other; .reg .f32 logit;
    mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"""
    + "".join(
        f"""
    setp.ge.f32 is, ${4 + n}, $8;
    setp.le.and.f32 is_{n}, ${4 + n}, $12, is;"""
        for n in range(4)
    )
    + """
    or.pred is, is_0, is_1; or.pred is, is, is_2; or.pred is, is, is_3;
    @!is bra done;"""
    + "".join(_COUNT_EACH.format(n=n, logit=4 + n, sign=SIGN.value) for n in range(4))
    + """
    done:
}"""
)
"""Does what `count_keys` does, for four logits; few are in a narrow bracket. The old number is not
asked for, so hardware adds up what a warp adds at one place."""

_FIND_PLACES = f"""
    mov.b32 end, 0x3F803F80;
    mov.b32 place, 0;
    fma.rn.bf16x2 pair, pair, end, place;
    and.b32 place, pair, 0x7FFF7FFF;
    mov.b32 end, 0x00010001;
    min.bf16x2 in_sign, place, end;
    mov.b32 end, {0x10001 * BELOW.value};
    max.bf16x2 place, place, end;
    mov.b32 end, {0x10001 * BEYOND.value};
    min.bf16x2 place, place, end;
    sub.u32 place, place, {0x10001 * BELOW.value};
    add.u32 in_sign, in_sign, place;
    prmt.b32 place, pair, pair, 0xBB99;
    and.b32 place, place, {0x10001 * (BINS.value - 1)};
    xor.b32 in_sign, in_sign, place;
    shr.u32 place, in_sign, 5;
    and.b32 place, place, 0x001F001F;
    xor.b32 in_sign, in_sign, place;
    mad.lo.u32 place, in_sign, 4, $4;
    and.b32 end, place, 0xFFFF;"""
"""The places of a pair's `half_bins`, both in one word, and that of the first."""

COUNT_HALVES = tl.constexpr(f"""{{
    .reg .pred is, is_0, is_1; .reg .b32 pair, in_sign, place, end;
    setp.ge.f32 is_0, $2, $6;
    setp.ge.f32 is_1, $3, $6;
    or.pred is, is_0, is_1;
    @!is bra done;
    prmt.b32 pair, $2, $3, 0x7632;{_FIND_PLACES}
    selp.b32 end, end, $8, is_0;
    red.shared.add.u32 [end], 1;
    shr.u32 end, place, 16;
    selp.b32 end, end, $8, is_1;
    red.shared.add.u32 [end], 1;
    done:
}}""")
"""Counts two logits where they reach a bound."""

COUNT_RAISED = tl.constexpr(f"""{{
    .reg .b32 pair, in_sign, place, end;
    prmt.b32 pair, $2, $3, 0x7632;
    max.bf16x2 pair, pair, $6;{_FIND_PLACES}
    red.shared.add.u32 [end], 1;
    shr.u32 end, place, 16;
    red.shared.add.u32 [end], 1;
}}""")
"""Counts two logits, raised to the value before a bound: 17 instructions instead of 26."""


@triton.jit
def numbers_of(call, row):
    """The address of the numbers of a row's bins: int32."""
    return call.scratch.bins + row.slot * BINS


@triton.jit
def half_bins(logits):
    """The bins of logits by their upper halves."""
    # Both zeros share a bin.
    bits = (logits + 0.0).to(tl.int32, bitcast=True)
    magnitude = (bits >> 16) & 0x7FFF
    in_sign = tl.minimum(tl.maximum(magnitude, BELOW), BEYOND) - BELOW
    in_sign += (magnitude != 0).to(tl.int32)
    return (in_sign ^ (bits >> 31)) + SIGN


@triton.jit
def bin_shift(low, high):
    """How many low bits of keys differ within a bin, between two keys."""
    distance = (high.to(tl.int64) - low.to(tl.int64)).to(tl.float32)
    exponent = (distance.to(tl.int32, bitcast=True) >> 23) - 127
    return tl.maximum(exponent + 1 - 12, 0)


@triton.jit
def reserve_own():
    """The address of a program's own numbers."""
    own = tl.program_id(0) * 0
    if not INTERPRETED:
        own = tl.inline_asm_elementwise(
            RESERVE, "=r,r", [own], dtype=tl.int32, is_pure=False, pack=1
        )
    return own


@triton.jit
def clear_own(own):
    """Zero a program's own numbers."""
    if not INTERPRETED:
        place = own + 16 * tl.arange(0, BINS // 4)
        tl.inline_asm_elementwise(SET_ZERO, "=r,r", [place], dtype=tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()


@triton.jit
def add_up(call, row, own, dropped):
    """Add a program's own numbers to those of the row, but for one bin."""
    if not INTERPRETED:
        tl.debug_barrier()
        for chunk in range(BINS // CHUNK):
            # Neighbouring programs begin at different places, so that they seldom collide.
            turn = (chunk + tl.program_id(0)) % (BINS // CHUNK)
            place = turn * CHUNK + tl.arange(0, CHUNK)
            counted = tl.inline_asm_elementwise(
                LOAD, "=r,r", [own + 4 * place], dtype=tl.int32, is_pure=False, pack=1
            )
            # Triton cannot tell that these are adjacent: a thread adds one, a warp 32 in a row.
            bins = _moved(place)
            wanted = (counted != 0) & (bins != dropped)
            tl.atomic_add(numbers_of(call, row) + bins, counted, mask=wanted, sem="relaxed")


@triton.jit
def count_keys(call, row, own, logits, low, high):
    """Count logits between two others in the bins of their keys."""
    low_key = as_key(low, 0)
    shift = bin_shift(low_key, as_key(high, 0))
    if INTERPRETED:
        distance = (as_key(logits, 0) - low_key).to(tl.uint32, bitcast=True)
        place = (distance >> shift).to(tl.int32, bitcast=True)
        _count(call, row, place, (logits >= low) & (logits <= high))
    else:
        tl.inline_asm_elementwise(
            COUNT_KEYS,
            "=&r,=&r,=&r,=&r,f,f,f,f,f,f,f,f,f,f,f,f,r,r,r,r,r,r,r,r,r,r,r,r",
            [logits, low, high, low_key, shift, own],
            dtype=tl.int32,
            is_pure=False,
            pack=4,
        )


@triton.jit
def _count(call, row, place, flags):
    tl.atomic_add(numbers_of(call, row) + place, place * 0 + 1, mask=flags, sem="relaxed")


@triton.jit
def value_before(low, row_max, inverse, are_even):
    """The bfloat16 before a bound, to which all logits below it may be raised.

    Args:
        low: scalar, the bound.
        row_max, inverse: the row's largest logit and 1 / temperature.
        are_even: whether all logits are bfloat16.

    Returns:
        Whether they may be; the value; and its bin, which is not to be added up. At the lowest
        bound that is no bin, as -inf may be counted among the lowest logits if these have no mass.
    """
    key = as_key(low, 0)
    key = tl.where(key < 0, key | 0xFFFF, (key + 0xFFFF) & -0x10000)
    bits = from_key(key - 0x10000, 0).to(tl.int32, bitcast=True) & -0x10000
    value = bits.to(tl.float32, bitcast=True)
    alone = are_even & (half_bins(value) != half_bins(from_key(key, 0)))
    weightless = (low == LOWEST_FINITE) & (mass_of(low, row_max, inverse) == 0)
    return alone | weightless, value, tl.where(alone, half_bins(value), -1)


@triton.jit
def count_halves(call, row, own, logits, low, before):
    """Count logits from a bound on by their upper halves; `before` is its `value_before`."""
    raises, value, dropped = before
    if INTERPRETED:
        flags = logits >= low
        if raises:
            logits = tl.where(logits < value, value, logits)
            flags = half_bins(logits) != dropped
        _count(call, row, half_bins(logits), flags)
    elif raises:
        pair = ((value.to(tl.int32, bitcast=True) >> 16) & 0xFFFF) * 0x10001
        tl.inline_asm_elementwise(
            COUNT_RAISED,
            "=r,=r,f,f,r,r,r,r",
            [logits, own * 0x10001, pair],
            dtype=tl.int32,
            is_pure=False,
            pack=2,
        )
    else:
        tl.inline_asm_elementwise(
            COUNT_HALVES,
            "=r,=r,f,f,r,r,f,f,r,r",
            [logits, own * 0x10001, low, own + (OWN_BYTES - 4)],
            dtype=tl.int32,
            is_pure=False,
            pack=2,
        )


@triton.jit
def _moved(place):
    """Where a program keeps a bin, and the reverse: bins of integers must not share a bank."""
    return place ^ ((place >> 5) & 31) ^ SIGN
