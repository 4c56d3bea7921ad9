"""Counts a row's logits in bins: by the upper half of float32, or by keys between two others.

Each upper half is one bfloat16 value. A program counts in shared memory, for which Triton has no
name, in a few lines of assembly; in the interpreter it counts in the row's bins.
"""

import triton
import triton.language as tl

from ..assembly import INTERPRETED, STORE_WHERE, assembled
from ..units import LOWEST_FINITE, LOWEST_KEY, as_key, from_key, mass_of

SIGN = tl.constexpr(2048)
"""Bins of halves of one sign: 0, all below 2**-10, one for each magnitude, and all from 63 on."""
BINS = tl.constexpr(2 * SIGN.value)
"""Bins of halves, from the lowest to the highest; or of equally many neighbouring keys each."""

BELOW = tl.constexpr(((127 - 10) << 7) - 1)
"""The half before 2**-10's."""
BEYOND = tl.constexpr(BELOW.value + SIGN.value - 2)

CHUNK = tl.constexpr(1024)
"""How many numbers a program adds up at once."""

LISTED = tl.constexpr(128)
"""The places of a program's list of blocks: as many as a part has."""
RESERVE = tl.constexpr(
    f"{{ .shared .align 16 .b8 bins[{4 * (BINS.value + LISTED.value)}]; mov.u32 $0, bins; }}"
)
PUT = tl.constexpr(STORE_WHERE.format("st.shared.b32"))
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
    shr.u32 other, place, 4;
    xor.b32 place, place, other;
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
    + "".join(_COUNT_EACH.format(n=n, logit=4 + n) for n in range(4))
    + """
    done:
}"""
)
"""Does what `count_keys` does, for four logits; few are in a narrow bracket. The old number is not
asked for, so hardware adds up what a warp adds at one place."""
KEY_REGISTERS = tl.constexpr(",".join(["=&r"] * 4 + ["f"] * 12 + ["r"] * 12))

COUNT_HALVES = tl.constexpr(f"""{{
    .reg .b32 pair, size, place, end;
    max.bf16x2 pair, $2, $5;
    abs.bf16x2 size, pair;
    mov.b32 end, {0x10001 * BELOW.value};
    max.bf16x2 place, size, end;
    mov.b32 end, {0x10001 * BEYOND.value};
    min.bf16x2 place, place, end;
    mov.b32 end, 0x00010001;
    min.bf16x2 size, size, end;
    sub.u32 place, place, {0x10001 * BELOW.value};
    add.u32 place, place, size;
    and.b32 end, pair, 0x80008000;
    or.b32 place, place, end;
    shr.u32 end, place, 4;
    xor.b32 place, place, end;
    and.b32 place, place, {0x10001 * (BINS.value - 1)};
    mad.lo.u32 place, place, 4, $3;
    and.b32 end, place, 0xFFFF;
    red.shared.add.u32 [end], 1;
    shr.u32 end, place, 16;
    red.shared.add.u32 [end], 1;
}}""")
"""Counts two bfloat16, raised to a third, by their signs and magnitudes, in 12 instructions."""

NOT_COUNTED = tl.constexpr(SIGN.value)
"""The place of -0, where logits are that do not count."""


@triton.jit
def numbers_of(call, row):
    """The address of the numbers of a row's bins: int32."""
    return call.scratch.bins + row.slot * BINS


@triton.jit
def half_bins(logits):
    """The bins of logits by their upper halves; that of zero holds those beside it, too."""
    bits = logits.to(tl.int32, bitcast=True) >> 16
    magnitude = bits & 0x7FFF
    in_sign = tl.minimum(tl.maximum(magnitude, BELOW), BEYOND) - BELOW
    in_sign += (magnitude != 0).to(tl.int32)
    return (in_sign ^ tl.where(magnitude == 0, 0, bits >> 31)) + SIGN


@triton.jit
def bin_shift(low, high):
    """How many low bits of keys differ within a bin, between two keys."""
    distance = (high.to(tl.int64) - low.to(tl.int64)).to(tl.float32)
    exponent = (distance.to(tl.int32, bitcast=True) >> 23) - 127
    return tl.maximum(exponent + 1 - 12, 0)


@triton.jit
def reserve_own():
    """The address of a program's own numbers."""
    return assembled(RESERVE, "=r,r", [tl.program_id(0) * 0])


@triton.jit
def clear_own(own):
    """Zero a program's own numbers."""
    assembled(SET_ZERO, "=r,r", [own + 16 * tl.arange(0, BINS // 4)])
    tl.debug_barrier()


@triton.jit
def put_blocks(own, block, rank, wanted):
    """List blocks by their ranks, which begin at 1."""
    place = own + 4 * (BINS + rank - 1)
    assembled(PUT, "=&r,r,r,r", [place, block, wanted.to(tl.int32)])
    tl.debug_barrier()


@triton.jit
def listed_blocks(own, nth, block, rank):
    """The blocks of these ranks: [N]."""
    if INTERPRETED:
        has_rank = rank[None, :] == nth[:, None]
        found = tl.min(tl.where(has_rank, block[None, :], 0x7FFFFFFF), 1)
    else:
        found = assembled(LOAD, "=r,r", [own + 4 * (BINS + nth - 1)])
    return found


@triton.jit
def add_up(call, row, own, by_halves, dropped):
    """Add a program's own numbers to those of the row, but for one bin.

    If that is -1, and bins are of halves, what is `NOT_COUNTED` is left out.
    """
    if not INTERPRETED:
        tl.debug_barrier()
        for chunk in range(BINS // CHUNK):
            # Neighbouring programs begin at different places, so that they seldom collide.
            turn = (chunk + tl.program_id(0)) % (BINS // CHUNK)
            place = turn * CHUNK + tl.arange(0, CHUNK)
            counted = assembled(LOAD, "=r,r", [own + 4 * place])
            # Triton cannot tell that these are adjacent: a thread adds one, a warp 32 in a row.
            bins = _bin_at(place)
            wanted = counted != 0
            if by_halves:
                in_sign = _bin_at(place & (SIGN - 1))
                bins = tl.where(in_sign == 0, SIGN, (in_sign ^ -(place // SIGN)) + SIGN)
                wanted = wanted & (bins != dropped) & ((dropped >= 0) | (place != NOT_COUNTED))
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
        assembled(COUNT_KEYS, KEY_REGISTERS, [logits, low, high, low_key, shift, own], 4)


@triton.jit
def _count(call, row, place, flags):
    tl.atomic_add(numbers_of(call, row) + place, place * 0 + 1, mask=flags, sem="relaxed")


@triton.jit
def value_before(low, row_max, inverse, are_even):
    """The bfloat16 before a bound, to which all logits below it may be raised.

    `are_even` says whether all logits are bfloat16. Returns whether they may be raised; the value;
    and its bin, which is not to be added up. At the lowest bound that is no bin, as -inf may be
    counted among the lowest logits if these have no mass.
    """
    key = as_key(low, 0)
    key = tl.where(key < 0, key | 0xFFFF, (key + 0xFFFF) & -0x10000)
    bits = from_key(key - 0x10000, 0).to(tl.int32, bitcast=True) & -0x10000
    value = bits.to(tl.float32, bitcast=True)
    alone = are_even & (half_bins(value) != half_bins(from_key(key, 0)))
    weightless = (low == LOWEST_FINITE) & (mass_of(low, row_max, inverse) == 0)
    dropped = tl.where(alone, half_bins(value), BINS)
    return alone | (are_even & weightless), value, dropped


@triton.jit
def upper_halves(logits, low):
    """Logits cut to bfloat16, those below a bound as `NOT_COUNTED`."""
    halves = logits
    if not INTERPRETED:
        bits = logits.to(tl.int32, bitcast=True)
        # What is beside 0 counts as 0.
        bits = tl.where(bits < LOWEST_KEY + 0x10000, 0, bits)
        bits = [tl.where(logits >= low, bits, LOWEST_KEY)]
        halves = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", bits, dtype=tl.bfloat16, is_pure=True, pack=2
        )
    return halves


@triton.jit
def count_halves(call, row, own, halves, low, value):
    """Count bfloat16 from a bound on by their bins, after they are raised to a value."""
    if INTERPRETED:
        logits = halves.to(tl.float32)
        _count(call, row, half_bins(logits), logits >= low)
    else:
        pair = ((value.to(tl.int32, bitcast=True) >> 16) & 0xFFFF) * 0x10001
        assembled(COUNT_HALVES, "=r,=r,r,r,r,r,r", [halves, own * 0x10001, pair], 2)


@triton.jit
def _bin_at(place):
    """The bin that a program keeps at a place: bins of integers must not share a bank."""
    return place ^ (place >> 4) ^ (place >> 8)
