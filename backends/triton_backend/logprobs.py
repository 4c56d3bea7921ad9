"""Stage 6, on request: logprobs of emitted tokens and of the most likely ones.

The most likely tokens are taken one after the other, each from the block with the largest maximum
left. This module refuses to know where tokens come from.
"""

import triton
import triton.language as tl

from .race import BLOCK, NEVER, lowest_argmax
from .recipe import first_row, load_target, temperature_of


@triton.jit
def block_logits(
    target,
    adjust,
    plain,
    requests,
    request,
    start,
    row,
    block,
    processed,
    threshold,
    NUM_DRAFTS: tl.constexpr,
):
    """One block of a row as its logprobs see it, and its token ids: [1, BLOCK] each."""
    token_id = block * BLOCK + tl.arange(0, BLOCK)[None, :]
    if processed:
        logits = load_target(target, adjust, requests, request, start, row, token_id, NUM_DRAFTS)
    else:
        logits = load_target(target, plain, requests, request, start, row, token_id, NUM_DRAFTS)
    return tl.where(logits >= threshold, logits, NEVER), token_id


@triton.jit
def next_in_block(logits, token_id, last_logit, last_id):
    """The first token of a block behind another in the order of logprobs: (logit, id).

    The order is falling logits, and rising ids among equals.
    """
    behind = (logits < last_logit) | ((logits == last_logit) & (token_id > last_id))
    remaining = tl.where(behind, logits, NEVER)
    best = tl.max(remaining, 1)
    tied = behind & (remaining == best[:, None])
    return tl.max(best, 0), tl.min(tl.min(tl.where(tied, token_id, 2147483647), 1), 0)


@triton.jit
def next_impossible(
    target,
    adjust,
    plain,
    requests,
    request,
    start,
    row,
    processed,
    threshold,
    last_id,
    NUM_DRAFTS: tl.constexpr,
):
    """The lowest token id behind another whose probability is 0; at least vocab_size if none."""
    found = 2147483647
    block = (last_id + 1) // BLOCK
    while (found == 2147483647) & (block * BLOCK < target.vocab_size):
        logits, token_id = block_logits(
            target,
            adjust,
            plain,
            requests,
            request,
            start,
            row,
            block,
            processed,
            threshold,
            NUM_DRAFTS,
        )
        possible = (logits == NEVER) & (token_id > last_id) & (token_id < target.vocab_size)
        found = tl.min(tl.min(tl.where(possible, token_id, 2147483647), 1), 0)
        block += 1
    return tl.minimum(found, target.vocab_size)


@triton.jit
def logprobs_kernel(
    target,
    requests,
    adjust,
    plain,
    target_recipe,
    scratch,
    raw,
    token_ids,
    processed_flags,
    emitted,
    top_token_ids,
    top,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    TOP_N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One program per place of the output."""
    place = tl.program_id(0).to(tl.int64)
    request = tl.program_id(0) // (NUM_DRAFTS + 1)
    row = tl.program_id(0) % (NUM_DRAFTS + 1)
    token = tl.load(token_ids + place).to(tl.int32)
    start, _num_rows = first_row(target, request)
    processed = tl.load(processed_flags + request) != 0
    slot = (request * ROWS + row).to(tl.int64)
    threshold = NEVER
    inverse = 1.0
    if processed:
        inverse, _greedy = temperature_of(target_recipe, request)
        summary = scratch.summaries + slot * 2
        blocks = scratch.statistics + slot * 2 * scratch.num_blocks
        if scratch.thresholds is not None:
            threshold = tl.load(scratch.thresholds + slot)
    else:
        summary = raw.summaries + place * 2
        blocks = raw.statistics + place * 2 * raw.num_blocks
    row_max = tl.load(summary)
    log_total = tl.load(summary + 1)
    out = place * TOP_N
    rank = tl.arange(0, triton.next_power_of_2(TOP_N + 1))
    if token < 0:
        tl.store(emitted + place, NEVER)
        tl.store(top_token_ids + out + rank, -1, mask=rank < TOP_N)
        tl.store(top + out + rank, NEVER, mask=rank < TOP_N)
    else:
        logits, token_id = block_logits(
            target,
            adjust,
            plain,
            requests,
            request,
            start,
            row,
            token // BLOCK,
            processed,
            threshold,
            NUM_DRAFTS,
        )
        logit = tl.max(tl.max(tl.where(token_id == token, logits, NEVER), 1), 0)
        tl.store(emitted + place, (logit - row_max) * inverse - log_total)
        block = tl.arange(0, WIDTH)[None, :]
        largest = tl.load(blocks + block, mask=block < scratch.num_blocks, other=NEVER)
        last_logit = float("inf")
        last_id = -1
        for _rank in range(TOP_N):
            if tl.max(tl.max(largest, 1), 0) > NEVER:
                winner = tl.max(lowest_argmax(largest, block), 0)
                logits, token_id = block_logits(
                    target,
                    adjust,
                    plain,
                    requests,
                    request,
                    start,
                    row,
                    winner,
                    processed,
                    threshold,
                    NUM_DRAFTS,
                )
                last_logit, last_id = next_in_block(logits, token_id, last_logit, last_id)
                left, _left_id = next_in_block(logits, token_id, last_logit, last_id)
                largest = tl.where(block == winner, left, largest)
            else:
                if last_logit > NEVER:
                    last_id = -1
                last_logit = NEVER
                last_id = next_impossible(
                    target,
                    adjust,
                    plain,
                    requests,
                    request,
                    start,
                    row,
                    processed,
                    threshold,
                    last_id,
                    NUM_DRAFTS,
                )
            exists = last_id < target.vocab_size
            tl.store(top_token_ids + out + _rank, tl.where(exists, last_id, -1).to(tl.int64))
            log_prob = (last_logit - row_max) * inverse - log_total
            tl.store(top + out + _rank, tl.where(exists, log_prob, NEVER))
