"""Inline assembly, for what Triton has no name or no fast code; its interpreter runs none."""

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(knobs.runtime.interpret)

STORE_WHERE = "{{ .reg .pred is; mov.b32 $0, 0; setp.ne.s32 is, $3, 0; @is {} [$1], $2; }}"
STORE = tl.constexpr(STORE_WHERE.format("st.global.f32"))
"""Buys 8% where few logits are kept: top-k 50 and top-p 0.9 of tied rows, 50% allowed, R = 256."""

LOOK_UP = tl.constexpr("""{
    .reg .pred is; .reg .u64 place;
    mov.u32 $0, $4;
    setp.ne.s32 is, $2, 0;
    mad.wide.s32 place, $1, 1, $3;
    @is ld.global.u8 $0, [place];
}""")


@triton.jit
def assembled(
    TEXT: tl.constexpr,
    REGISTERS: tl.constexpr,
    given,
    PACK: tl.constexpr = 1,
    PURE: tl.constexpr = False,
):
    """Run assembly elementwise, PACK elements at once: int32.

    The interpreter does nothing, and returns the first input.
    """
    result = given[0]
    if not INTERPRETED:
        result = tl.inline_asm_elementwise(
            TEXT, REGISTERS, given, dtype=tl.int32, is_pure=PURE, pack=PACK
        )
    return result


@triton.jit
def store_here(place, values, wanted):
    """Store numbers from the threads that hold them: warps need not wait for each other."""
    if INTERPRETED:
        tl.store(place, values, mask=wanted)
    else:
        assembled(STORE, "=&r,l,f,r", [place.to(tl.int64), values, wanted.to(tl.int32)])


@triton.jit
def look_up(table, number, wanted, OTHER: tl.constexpr):
    """Load bytes by number where wanted: int32, in registers of the numbers' threads.

    A load may leave its result in other threads. These pass it on before anything else is loaded.
    """
    if INTERPRETED:
        found = tl.load(table + number, mask=wanted, other=OTHER).to(tl.int32)
    else:
        given = [number, wanted.to(tl.int32), table.to(tl.int64), OTHER]
        found = assembled(LOOK_UP, "=&r,r,r,l,r", given, PURE=True)
    return found
