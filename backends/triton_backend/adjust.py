"""Applies bias and penalties; a program searches only the ids in its range."""

import triton
import triton.language as tl

from .random_bits import INTERPRETED
from .rows import draft_places, entry_of, request_slot

NOWHERE = tl.constexpr(2147483647)

REPEAT = tl.constexpr("""{
    .reg .pred is; .reg .f32 rest;
    mov.f32 $0, $1;
    setp.ne.s32 is, $2, 0;
    @!is bra done;
    mul.rn.f32 $0, $1, $3;
    setp.gt.f32 is, $1, 0f00000000;
    @!is bra done;
    mul.rn.f32 $0, $1, $4;
    fma.rn.f32 rest, $0, $5, $1;
    fma.rn.f32 $0, rest, $4, $0;
    fma.rn.f32 rest, $0, $5, $1;
    fma.rn.f32 $0, rest, $4, $0;
    done:
}""")
"""Does what `_repeated` does: few tokens were seen, and most lanes have nothing to do."""

_LOOK_UP = """{{
    .reg .pred is; .reg .u64 place;
    mov.u32 $0, $4;
    setp.ne.s32 is, $2, 0;
    mad.wide.s32 place, $1, {}, $3;
    @is ld.global.{} $0, [place];
}}"""
BYTES = tl.constexpr(_LOOK_UP.format(1, "u8"))
WORDS = tl.constexpr(_LOOK_UP.format(4, "b32"))


@triton.jit
def seen(call, request, ids):
    """1 where a token is in the prompt or the output, any shape: int32; zeros without penalties."""
    flags = ids * 0
    if call.entries.repetition is not None:
        inside = ids < call.target.vocab_size
        base = request_slot(call, request) * call.requests.counts_stride
        in_output = tl.load(call.requests.output_counts + base + ids, mask=inside, other=0)
        in_prompt = tl.load(call.requests.prompt_mask + base + ids, mask=inside, other=0)
        flags = ((in_output > 0) | (in_prompt != 0)).to(tl.int32)
    return flags


@triton.jit
def changed(call, row, begin, end):
    """Which entries of a request's bias, and which drafts before the row, are ids in a range."""
    entry = tl.arange(0, call.variant.bias_width)
    biased = entry < 0
    if call.entries.bias_ids is not None:
        bias_ids = call.entries.bias_ids + entry_of(call, row.request) * call.entries.bias_width
        token = tl.load(bias_ids + entry, mask=entry < call.entries.bias_width, other=-1)
        biased = (token >= begin) & (token < end)
    place = tl.arange(0, triton.next_power_of_2(call.variant.num_drafts + 1))
    drafted = place < 0
    if call.entries.repetition is not None and call.variant.num_drafts > 0:
        tokens = draft_places(call, row.request, place)
        token = tl.load(tokens, mask=place < row.place, other=-1)
        drafted = (token >= begin) & (token < end)
    return biased, drafted, next_flag(biased, -1), next_flag(drafted, -1)


@triton.jit
def touched(call, row, seen, ids, changed):
    """1 where a token was seen, has a bias, or is a draft before the row."""
    biased, drafted, following_bias, following_draft = changed
    if call.entries.bias_ids is not None:
        base = entry_of(call, row.request) * call.entries.bias_width
        while following_bias < NOWHERE:
            token = tl.load(call.entries.bias_ids + base + following_bias).to(tl.int32)
            seen |= (ids == token).to(tl.int32)
            following_bias = next_flag(biased, following_bias)
    if call.entries.repetition is not None and call.variant.num_drafts > 0:
        while following_draft < NOWHERE:
            token = tl.load(draft_places(call, row.request, following_draft)).to(tl.int32)
            seen |= (ids == token).to(tl.int32)
            following_draft = next_flag(drafted, following_draft)
    return seen


@triton.jit
def next_flag(flags, last):
    """The place of the next flag after another one."""
    place = tl.arange(0, flags.shape[0])
    return tl.min(tl.where(flags & (place > last), place, NOWHERE), 0)


@triton.jit
def adjusted(call, row, logits, ids, seen, changed):
    """Logits of a target's row with bias and penalties, each operation rounded separately."""
    biased, drafted, following_bias, following_draft = changed
    if call.entries.bias_ids is not None:
        base = entry_of(call, row.request) * call.entries.bias_width
        while following_bias < NOWHERE:
            token = tl.load(call.entries.bias_ids + base + following_bias).to(tl.int32)
            value = tl.load(call.entries.bias_values + base + following_bias)
            logits = tl.where(ids == token, logits + value, logits)
            following_bias = next_flag(biased, following_bias)
    if call.entries.repetition is not None:
        seen, occurrences = _beside(logits, seen)
        if call.variant.num_drafts > 0:
            while following_draft < NOWHERE:
                token = tl.load(draft_places(call, row.request, following_draft)).to(tl.int32)
                occurrences += (ids == token).to(tl.int32)
                following_draft = next_flag(drafted, following_draft)
        repetition, inverse, presence, frequency = row.penalties
        if repetition != 1.0:
            logits = _repeated(logits, seen | occurrences, repetition, inverse)
        if (frequency != 0.0) | (presence != 0.0):
            slot = request_slot(call, row.request)
            counts = call.requests.output_counts + slot * call.requests.counts_stride
            occurrences += look_up(WORDS, counts, ids, seen != 0, 0)
            counted = frequency * occurrences.to(tl.float32)
            logits -= tl.where(occurrences > 0, counted, 0.0)
            logits -= tl.where(occurrences > 0, presence, 0.0)
    return logits


@triton.jit
def _beside(logits, seen):
    """Whether tokens were seen, and zeros, in the registers of the threads with their logits."""
    occurrences = seen * 0
    if not INTERPRETED:
        seen, occurrences = tl.inline_asm_elementwise(
            "mov.u32 $0, $2; mov.u32 $1, 0;",
            "=r,=r,r,f",
            [seen, logits],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    return seen, occurrences


@triton.jit
def look_up(KIND: tl.constexpr, table, number, wanted, OTHER: tl.constexpr):
    """Load bytes or words by number where wanted: int32, in registers of the numbers' threads.

    A load may leave its result in other threads. These pass it on before anything else is loaded.
    """
    if INTERPRETED:
        found = tl.load(table + number, mask=wanted, other=OTHER).to(tl.int32)
    else:
        found = tl.inline_asm_elementwise(
            KIND,
            "=&r,r,r,l,r",
            [number, wanted.to(tl.int32), table.to(tl.int64), OTHER],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    return found


@triton.jit
def _repeated(logits, seen, repetition, inverse):
    """Logits divided by the repetition penalty, or times it if negative, where tokens were seen.

    On a device a product that is corrected twice gives the quotient, rounded to nearest (Markstein,
    "Computation of elementary functions on the IBM RISC System/6000", 1990), in a third of the time
    of a general division.
    """
    if INTERPRETED:
        divided = tl.div_rn(logits, repetition)
        repeated = tl.where(logits > 0.0, divided, logits * repetition)
        logits = tl.where(seen != 0, repeated, logits)
    else:
        logits = tl.inline_asm_elementwise(
            REPEAT,
            "=&f,f,r,f,f,f",
            [logits, seen, repetition, inverse, -repetition],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return logits
