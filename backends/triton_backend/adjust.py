"""Bias and penalties, for which only ids in a program's range are looked through."""

import triton
import triton.language as tl

from .random_bits import INTERPRETED
from .rows import entry_of, request_slot

NOWHERE = tl.constexpr(2147483647)


@triton.jit
def seen(call, row, ids):
    """How often tokens occur in the output, and whether in the prompt; zeros without penalties."""
    in_output = ids * 0
    in_prompt = in_output
    if call.adjust.repetition is not None:
        inside = ids < call.target.vocab_size
        base = request_slot(call, row.request) * call.counts.stride
        in_output = tl.load(call.counts.output_counts + base + ids, mask=inside, other=0)
        in_prompt = tl.load(call.counts.prompt_mask + base + ids, mask=inside, other=0)
    return in_output, in_prompt


@triton.jit
def changed(call, row, begin, end):
    """Which entries of a request's bias, and which drafts before the row, are ids in a range."""
    entry = tl.arange(0, call.variant.bias_width)
    biased = entry < 0
    if call.adjust.bias_ids is not None:
        bias_ids = call.adjust.bias_ids + entry_of(call, row.request) * call.adjust.bias_width
        token = tl.load(bias_ids + entry, mask=entry < call.adjust.bias_width, other=-1)
        biased = (token >= begin) & (token < end)
    place = tl.arange(0, triton.next_power_of_2(call.variant.num_drafts + 1))
    drafted = place < 0
    if call.adjust.repetition is not None and call.variant.num_drafts > 0:
        drafts = call.requests.draft_token_ids
        drafts += row.request.to(tl.int64) * call.requests.draft_stride
        token = tl.load(drafts + place, mask=place < row.place, other=-1)
        drafted = (token >= begin) & (token < end)
    return biased, drafted, _next(biased, -1), _next(drafted, -1)


@triton.jit
def _next(flags, last):
    """The place of the first flag behind another one."""
    place = tl.arange(0, flags.shape[0])
    return tl.min(tl.where(flags & (place > last), place, NOWHERE), 0)


@triton.jit
def adjusted(call, row, logits, ids, seen, changed):
    """Logits of a target's row with bias and penalties, each operation rounded by itself."""
    in_output, in_prompt = seen
    biased, drafted, following_bias, following_draft = changed
    if call.adjust.bias_ids is not None:
        base = entry_of(call, row.request) * call.adjust.bias_width
        while following_bias < NOWHERE:
            token = tl.load(call.adjust.bias_ids + base + following_bias).to(tl.int32)
            value = tl.load(call.adjust.bias_values + base + following_bias)
            logits = tl.where(ids == token, logits + value, logits)
            following_bias = _next(biased, following_bias)
    if call.adjust.repetition is not None:
        if call.variant.num_drafts > 0:
            drafts = call.requests.draft_token_ids
            drafts += row.request.to(tl.int64) * call.requests.draft_stride
            while following_draft < NOWHERE:
                token = tl.load(drafts + following_draft).to(tl.int32)
                in_output += (ids == token).to(tl.int32)
                following_draft = _next(drafted, following_draft)
        entry = entry_of(call, row.request)
        repetition = tl.load(call.adjust.repetition + entry)
        if repetition != 1.0:
            # A select keeps a product and a difference apart.
            repeated = tl.where(logits > 0.0, _divided(logits, repetition), logits * repetition)
            logits = tl.where((in_prompt != 0) | (in_output > 0), repeated, logits)
        frequency = tl.load(call.adjust.frequency + entry)
        presence = tl.load(call.adjust.presence + entry)
        if (frequency != 0.0) | (presence != 0.0):
            logits -= tl.where(in_output > 0, frequency * in_output.to(tl.float32), 0.0)
            logits -= tl.where(in_output > 0, presence, 0.0)
    return logits


@triton.jit
def _divided(logits, divisor):
    """Logits divided by one number, rounded to nearest.

    On a device by two corrections of a product (Markstein, "Computation of elementary functions on
    the IBM RISC System/6000", 1990): a third of what a general division takes.
    """
    if INTERPRETED:
        quotient = tl.div_rn(logits, divisor)
    else:
        inverse = tl.div_rn(1.0, divisor)
        quotient = logits * inverse
        quotient = tl.fma(tl.fma(quotient, -divisor, logits), inverse, quotient)
        quotient = tl.fma(tl.fma(quotient, -divisor, logits), inverse, quotient)
    return quotient
