"""Logits as they are loaded: raw rows, bias and penalties; nothing is ever written back.

Temperature and filters are applied where weights are made. This module refuses to make weights.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def request_slot(requests, request):
    """The request's slot in draft logits and token counts, int64."""
    if requests.slot_ids is None:
        slot = request.to(tl.int64)
    else:
        slot = tl.load(requests.slot_ids + request).to(tl.int64)
    return slot


@triton.jit
def first_row(target, request):
    """Where a request's rows begin and how many it has: (int64, int32)."""
    if target.cu_num_logits is None:
        start = request.to(tl.int64)
        num_rows = 1
    else:
        start = tl.load(target.cu_num_logits + request).to(tl.int64)
        num_rows = (tl.load(target.cu_num_logits + request + 1).to(tl.int64) - start).to(tl.int32)
    return start, num_rows


@triton.jit
def num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS: tl.constexpr):
    """The draft's length up to the first bad id, and whether that id is out of range."""
    if NUM_DRAFTS == 0:
        num_drafts = num_rows * 0
        flagged = num_drafts
    else:
        WIDTH: tl.constexpr = triton.next_power_of_2(NUM_DRAFTS)
        place = tl.arange(0, WIDTH)
        limit = tl.maximum(tl.minimum(num_rows - 1, NUM_DRAFTS), 0)
        ids = requests.draft_token_ids + request.to(tl.int64) * requests.draft_stride + place
        token_id = tl.load(ids, mask=place < limit, other=-1).to(tl.int64)
        good = (token_id >= 0) & (token_id < target.vocab_size)
        num_drafts = tl.min(tl.where(good, WIDTH, place), 0)
        out_of_range = (place == num_drafts) & (place < limit) & (token_id != -1)
        flagged = tl.max(out_of_range.to(tl.int32), 0)
    return num_drafts, flagged


@triton.jit
def temperature_of(recipe, request):
    """(1 / temperature, whether the request is greedy); a greedy request's weights are unused."""
    if recipe.temperature is None:
        temperature = request * 0 + 1.0
    else:
        temperature = tl.load(recipe.temperature + request)
    greedy = temperature == 0.0
    return 1.0 / tl.where(greedy, 1.0, temperature), greedy


@triton.jit
def load_target(target, adjust, requests, request, start, row, token_ids, NUM_DRAFTS: tl.constexpr):
    """Adjusted logits of a request's row (or rows, broadcast against token ids), float32."""
    inside = token_ids < target.vocab_size
    base = target.logits + (start + row) * target.row_stride
    if target.inverse_map is None:
        logits = tl.load(base + token_ids, mask=inside, other=float("-inf")).to(tl.float32)
    else:
        column = tl.load(target.inverse_map + token_ids, mask=inside, other=-1)
        logits = tl.load(base + column, mask=column >= 0, other=float("-inf")).to(tl.float32)
    if adjust.bias_ids is not None:
        for entry in range(adjust.bias_width):
            place = request * adjust.bias_width + entry
            biased = token_ids == tl.load(adjust.bias_ids + place)
            logits += tl.where(biased, tl.load(adjust.bias_values + place), 0.0)
    if adjust.prompt_mask is not None:
        logits = _penalise(logits, adjust, requests, request, row, token_ids, inside, NUM_DRAFTS)
    return logits


@triton.jit
def _penalise(logits, adjust, requests, request, row, token_ids, inside, NUM_DRAFTS: tl.constexpr):
    base = request_slot(requests, request) * adjust.counts_stride
    in_output = tl.load(adjust.output_counts + base + token_ids, mask=inside, other=0)
    for place in tl.static_range(NUM_DRAFTS):
        ids = requests.draft_token_ids + request.to(tl.int64) * requests.draft_stride
        drafted = (token_ids == tl.load(ids + place)) & (place < row)
        in_output += drafted.to(tl.int32)
    in_prompt = tl.load(adjust.prompt_mask + base + token_ids, mask=inside, other=0) != 0
    repetition = tl.load(adjust.repetition + request)
    repeated = tl.where(logits > 0.0, tl.div_rn(logits, repetition), logits * repetition)
    logits = tl.where(in_prompt | (in_output > 0), repeated, logits)
    # Behind a select, so that no multiplication is fused into a subtraction.
    frequency = tl.load(adjust.frequency + request) * in_output.to(tl.float32)
    logits -= tl.where(in_output > 0, frequency, 0.0)
    return logits - tl.where(in_output > 0, tl.load(adjust.presence + request), 0.0)


@triton.jit
def load_plain(base, vocab_size, token_ids):
    """Logits of a row as they are, float32."""
    inside = token_ids < vocab_size
    # Little of a row is read twice, so it may leave the caches first.
    logits = tl.load(
        base + token_ids, mask=inside, other=float("-inf"), eviction_policy="evict_first"
    )
    return logits.to(tl.float32)


@triton.jit
def load_draft(draft, slot, row, draft_ids):
    """Raw draft logits by draft id, float32."""
    base = draft.logits + slot * draft.slot_stride + row.to(tl.int64) * draft.row_stride
    inside = draft_ids < draft.vocab_size
    return tl.load(base + draft_ids, mask=inside, other=float("-inf")).to(tl.float32)


@triton.jit
def load_draft_at(draft, slot, row, token_ids, vocab_size):
    """Raw draft logits by target id, float32; -inf where the draft has no such token."""
    base = draft.logits + slot * draft.slot_stride + row.to(tl.int64) * draft.row_stride
    if draft.inverse_map is None:
        column = token_ids
        known = (token_ids < draft.vocab_size) & (token_ids >= 0)
    else:
        inside = (token_ids < vocab_size) & (token_ids >= 0)
        column = tl.load(draft.inverse_map + token_ids, mask=inside, other=-1)
        known = column >= 0
    return tl.load(base + column, mask=known, other=float("-inf")).to(tl.float32)
