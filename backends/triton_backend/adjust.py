"""Applies bias and penalties; a program searches only the ids in its range."""

import triton
import triton.language as tl

from .assembly import INTERPRETED
from .rows import drafted_token, entry_of, request_slot

NOWHERE = tl.constexpr(2147483647)

COMPARED = tl.constexpr(16)
"""With how many extra tokens ids are compared at once; with 128 ids, 16 pairs for each thread."""

_PENALIZE_EACH = """
    and.b32 some, ${seen}, ${bit};
    setp.eq.s32 is, some, 0;
    @is bra next_{n};
    mov.f32 logit, ${n};
    mul.rn.f32 ${n}, logit, $24;
    setp.gt.f32 is, logit, 0f00000000;
    @!is bra count_{n};
    mul.rn.f32 ${n}, logit, $28;
    fma.rn.f32 rest, ${n}, less, logit;
    fma.rn.f32 ${n}, rest, $28, ${n};
    fma.rn.f32 rest, ${n}, less, logit;
    fma.rn.f32 ${n}, rest, $28, ${n};
    count_{n}:
    @!counts bra next_{n};
    sub.u32 some, ${bit}, 1;
    popc.b32 some, some;
    mad.lo.s32 some, ${group}, 8, some;
    mad.wide.s32 place, some, 4, $20;
    ld.global.b32 some, [place];
    setp.lt.s32 is, some, 1;
    @is bra next_{n};
    cvt.rn.f32.s32 rest, some;
    mul.rn.f32 rest, rest, $36;
    sub.rn.f32 ${n}, ${n}, rest;
    sub.rn.f32 ${n}, ${n}, $32;
    next_{n}:"""
PENALIZE = tl.constexpr(
    """{
    .reg .pred is, counts; .reg .b32 some, more; .reg .u64 place; .reg .f32 logit, rest, less;
    and.b32 some, $8, $12; and.b32 more, $9, $13; or.b32 some, some, more;
    and.b32 more, $10, $14; or.b32 some, some, more;
    and.b32 more, $11, $15; or.b32 some, some, more;
    setp.eq.s32 is, some, 0;
    @is bra done;
    neg.f32 less, $24;
    setp.neu.f32 counts, $32, 0f00000000;
    setp.neu.or.f32 counts, $36, 0f00000000, counts;"""
    + "".join(_PENALIZE_EACH.format(n=n, seen=8 + n, bit=12 + n, group=16 + n) for n in range(4))
    + """
    done:
}"""
)
"""Does what `penalized` does, for four logits: few tokens were seen, and most warps skip all."""
PENALIZED = tl.constexpr(",".join(["=&f"] * 4 + ["0,1,2,3"] + ["r"] * 12 + ["l"] * 4 + ["f"] * 16))


@triton.jit
def seen(call, request, ids):
    """1 where a token is in the prompt or the output, any shape: int32."""
    inside = ids < call.target.vocab_size
    base = request_slot(call, request) * call.requests.counts_stride
    in_output = tl.load(call.requests.output_counts + base + ids, mask=inside, other=0)
    in_prompt = tl.load(call.requests.prompt_mask + base + ids, mask=inside, other=0)
    return ((in_output > 0) | (in_prompt != 0)).to(tl.int32)


@triton.jit
def extra_tokens(call, row, place):
    """Tokens by place, and their biases: drafts before the row, then biased ones; -1 if none."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts if call.entries.repetition is not None else 0
    tokens = place.to(tl.int64) * 0 - 1
    biases = place * 0.0
    if NUM_DRAFTS > 0:
        there = place < tl.minimum(row.place, NUM_DRAFTS)
        drafted = drafted_token(call, row.request, place, there)
        tokens = tl.where(there, drafted, tokens)
    if call.entries.bias_ids is not None:
        there = (place >= NUM_DRAFTS) & (place - NUM_DRAFTS < call.entries.bias_width)
        first = entry_of(call, row.request) * call.entries.bias_width - NUM_DRAFTS
        biased = tl.load(call.entries.bias_ids + first + place, mask=there, other=-1)
        tokens = tl.where(there, biased, tokens)
        biases = tl.load(call.entries.bias_values + first + place, mask=there, other=0.0)
    inside = (tokens >= 0) & (tokens < call.target.vocab_size)
    return tl.where(inside, tokens, -1).to(tl.int32), biases


@triton.jit
def next_flag(flags, last):
    """The place of the next flag after another one."""
    place = tl.arange(0, flags.shape[0])
    return tl.min(tl.where(flags & (place > last), place, NOWHERE), 0)


@triton.jit
def value_at(values, place, chosen):
    """The value at one place: scalar; others may be anything."""
    return tl.sum(tl.where(place == chosen, values, 0), 0)


@triton.jit
def biases_of(call, row, ids):
    """The biases of fewer tokens than a block: [N]."""
    bias = ids * 0.0
    EACH: tl.constexpr = call.variant.extra_width if ids.shape[0] == 1 else COMPARED
    for first in range(0, call.variant.extra_width, EACH):
        tokens, biases = extra_tokens(call, row, first + tl.arange(0, EACH))
        # A token has one bias at most, and none as a draft.
        bias += tl.sum(tl.where(ids[:, None] == tokens[None, :], biases[None, :], 0.0), 1)
    return bias


@triton.jit
def adjusted(call, row, logits, ids, bias):
    """Logits of a target's row, [N], with bias and penalties, each operation rounded separately."""
    if call.entries.bias_ids is not None:
        logits += bias
    if call.entries.repetition is not None:
        drafted = ids * 0
        for n in tl.static_range(call.variant.num_drafts):
            token = drafted_token(call, row.request, row.place * 0 + n, n < row.place)
            same = (ids == token) & (n < row.place) & (ids < call.target.vocab_size)
            drafted += same.to(tl.int32)
        flags = seen(call, row.request, ids) | drafted
        logits = _penalized(call, row, logits, ids, flags, drafted)
    return logits


@triton.jit
def _penalized(call, row, logits, ids, seen, occurrences):
    repetition, _inverse, presence, frequency = row.penalties
    repeated = tl.where(logits > 0.0, tl.div_rn(logits, repetition), logits * repetition)
    logits = tl.where(seen != 0, repeated, logits)
    occurrences += tl.load(_counts_of(call, row) + ids, mask=seen != 0, other=0)
    counted = frequency * occurrences.to(tl.float32)
    logits -= tl.where(occurrences > 0, counted, 0.0)
    return logits - tl.where(occurrences > 0, presence, 0.0)


@triton.jit
def _counts_of(call, row):
    """The address of a request's numbers of output tokens."""
    slot = request_slot(call, row.request)
    return call.requests.output_counts + slot * call.requests.counts_stride


@triton.jit
def penalized(call, row, logits, ids, group, byte):
    """Logits with penalties, without those of drafts: [blocks, N].

    On a device a product that is corrected twice gives the quotient, rounded to nearest (Markstein,
    "Computation of elementary functions on the IBM RISC System/6000", 1990), in a third of the time
    of a general division.

    Args:
        call, row, logits, ids: see `adjusted`.
        group, byte: for each logit the number of its 8 tokens, and a bit for each, set if seen.
    """
    bit = 1 << ids % 8
    repetition, inverse, presence, frequency = row.penalties
    if INTERPRETED:
        logits = _penalized(call, row, logits, ids, byte & bit, ids * 0)
    else:
        counts = _counts_of(call, row).to(tl.int64)
        given = [logits, byte, bit, group, counts, repetition, inverse, presence, frequency]
        logits = tl.inline_asm_elementwise(
            PENALIZE, PENALIZED, given, dtype=tl.float32, is_pure=True, pack=4
        )
    return logits
