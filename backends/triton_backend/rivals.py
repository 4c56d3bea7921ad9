"""Rows at which a draft certainly ends, told to programs that have not begun to read later rows.

Each program says what the best of its blocks scores in the row's race, and one what the draft
token's own block does. Nobody waits: who comes too early reads in vain. This module refuses to
decide where a draft ends: see `accept`.
"""

import triton
import triton.language as tl

from .race import BLOCK, NEVER, block_arrivals
from .random_bits import log_acceptance_uniform, quick_log
from .recipe import load_draft_at, request_slot, temperature_of

SLACK = tl.constexpr(0.01)
"""More than rounding changes in a logarithm: these scores and ratios are not those that decide."""

THREADS = tl.constexpr(64)
"""As many as the programs that read rows have, or more."""


@triton.jit
def rival_keys(scratch, request, row, there, NUM_DRAFTS: tl.constexpr):
    """What was said about rows so far, 0 for nothing: the best score's key, the draft token's."""
    word = scratch.rivals + (request * (NUM_DRAFTS + 1) + row).to(tl.int64) * 2
    # Past the cache that programs on other multiprocessors do not write to.
    best = tl.load(word, mask=there, other=0, cache_modifier=".cg")
    return best, tl.load(word + 1, mask=there, other=0, cache_modifier=".cg")


@triton.jit
def first_end(scratch, request, before, NUM_DRAFTS: tl.constexpr):
    """The first row before one that certainly ends the draft; that one if none is known."""
    # Words change while they are read. With a place for each thread, the minimum is found across
    # warps and is the same in all of them; else each warp would come to an answer of its own.
    row = tl.arange(0, max(triton.next_power_of_2(NUM_DRAFTS + 1), THREADS.value))
    best, own = rival_keys(scratch, request, row, row < before, NUM_DRAFTS)
    return tl.min(tl.where((own > 0) & (own < best), row, before), 0)


@triton.jit
def tell_rivals(
    base,
    out,
    scratch,
    requests,
    request,
    row,
    num_rows,
    vocab_size,
    inverse_temperature,
    greedy,
    first_block,
    last_block,
    stream,
    draft_index,
    WITH_MASSES: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Say what a program's blocks score, once it has stored their statistics.

    Args:
        base: where the row's logits begin.
        out: where its statistics begin.
        scratch, requests: see `arguments`.
        request, row, num_rows, vocab_size: scalars, which row, and how many the request has.
        inverse_temperature, greedy: scalars, of the request.
        first_block, last_block: scalars, the program's blocks are from the first to the last but 1.
        stream, draft_index: scalars, what the row's noise is keyed by.
        WITH_MASSES, NUM_DRAFTS: see `statistics_kernel`.
        WIDTH: at least as many as blocks.
    """
    block = first_block + tl.arange(0, WIDTH)
    inside = block < last_block
    scores = tl.load(out + block, mask=inside, other=NEVER)
    ids = requests.draft_token_ids + request.to(tl.int64) * requests.draft_stride
    drafted = tl.load(ids + row, mask=row + 1 < num_rows, other=-1).to(tl.int64)
    mine = (drafted >= first_block * BLOCK) & (drafted < last_block * BLOCK)
    mine = mine & (drafted < vocab_size)
    own = tl.load(base + drafted, mask=mine, other=NEVER).to(tl.float32)
    if WITH_MASSES:
        masses = tl.load(out + scratch.num_blocks + block, mask=inside, other=0.0)
        only = tl.zeros([1], tl.int32)
        seed = tl.load(requests.seeds + request)
        position = tl.load(requests.positions + request).to(tl.int32) + row + only
        index = draft_index + only
        arrivals = block_arrivals(seed, position, index, stream, WIDTH, first_block + only)
        arrivals = tl.reshape(arrivals, [WIDTH])
        sampled = scores * inverse_temperature + quick_log(masses / arrivals)
        sampled = tl.where(masses > 0.0, sampled, NEVER)
        sampled_own = tl.max(tl.where(block == drafted // BLOCK, sampled, NEVER), 0)
        sampled_own += SLACK + 1e-5 * tl.abs(sampled_own)
        scores = tl.where(greedy, scores, sampled)
        own = tl.where(greedy, own, sampled_own)
    word = scratch.rivals + (request * (NUM_DRAFTS + 1) + row).to(tl.int64) * 2
    tl.atomic_max(word, ordered_key(tl.max(scores, 0)), sem="relaxed")
    tl.store(word + 1, ordered_key(own), mask=mine)


@triton.jit
def tell_rejection(
    target,
    draft,
    requests,
    target_recipe,
    draft_recipe,
    scratch,
    request,
    start,
    row,
    num_rows,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Say that a row certainly rejects its draft token, once p and q are summed up.

    Args:
        target, draft, requests, target_recipe, draft_recipe, scratch: see `arguments`.
        request, start, num_rows: scalars, the request, its first row of logits, how many it has.
        row: scalar, the row that tests the draft token.
        NUM_DRAFTS, ROWS: see `statistics_kernel`.
    """
    inverse, greedy = temperature_of(target_recipe, request)
    draft_inverse = inverse
    dense = row < 0
    if draft.logits is not None:
        draft_inverse, one_hot = temperature_of(draft_recipe, request)
        dense = one_hot == 0
    place = (request * (NUM_DRAFTS + 1) + row).to(tl.int64)
    last = tl.where(dense, 1, 0)
    if tl.atomic_add(scratch.verdicts + place, 1) == last:
        ids = requests.draft_token_ids + request.to(tl.int64) * requests.draft_stride
        drafted = tl.load(ids + row, mask=row + 1 < num_rows, other=-1).to(tl.int64)
        good = (drafted >= 0) & (drafted < target.vocab_size)
        base = target.logits + (start + row) * target.row_stride
        logit = tl.load(base + drafted, mask=good, other=NEVER).to(tl.float32)
        slot = (request * ROWS + row).to(tl.int64)
        log_ratio = _log_prob(scratch, slot, logit, inverse)
        if draft.logits is not None:
            if dense:
                draft_slot = request_slot(requests, request)
                known = tl.where(good, drafted, -1)
                logit = load_draft_at(draft, draft_slot, row, known, target.vocab_size)
                log_ratio -= _log_prob(scratch, slot + NUM_DRAFTS + 1, logit, draft_inverse)
        seed = tl.load(requests.seeds + request)
        position = tl.load(requests.positions + request).to(tl.int32) + row
        log_uniform = log_acceptance_uniform(seed, position, row + 1)
        if good & (greedy == 0) & (log_uniform > log_ratio + SLACK):
            tl.store(scratch.rivals + place * 2, 2)
            tl.store(scratch.rivals + place * 2 + 1, 1)


@triton.jit
def _log_prob(scratch, slot, logit, inverse_temperature):
    row_max = tl.load(scratch.summaries + slot * 2, cache_modifier=".cg")
    log_total = tl.load(scratch.summaries + slot * 2 + 1, cache_modifier=".cg")
    return (logit - row_max) * inverse_temperature - log_total


@triton.jit
def forget_rivals(scratch, request, NUM_DRAFTS: tl.constexpr):
    """Make what was said about a request zero again, as the next call expects it."""
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    told = scratch.verdicts + request * (NUM_DRAFTS + 1) + row
    tl.store(told, 0, mask=row <= NUM_DRAFTS)
    place = tl.arange(0, 2 * triton.next_power_of_2(NUM_DRAFTS + 1))
    word = scratch.rivals + request.to(tl.int64) * (2 * (NUM_DRAFTS + 1)) + place
    tl.store(word, 0, mask=place < 2 * (NUM_DRAFTS + 1))


@triton.jit
def ordered_key(score):
    """A positive int32 that is not larger than another's unless the score is: int32."""
    bits = score.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.maximum((ordered >> 1) + 0x40000000, 1)
