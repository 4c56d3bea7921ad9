"""Stages 3 and 5 of policies that test p against q: what stands, and the token behind it.

This module refuses to know about greedy requests: they are strict.
"""

import triton
import triton.language as tl

from .accept import decide_probabilistic, drafted_tokens
from .block import decide_block
from .race import BLOCK, block_winner, lowest_argmax, token_noise
from .random_bits import RECOVER, TARGET
from .recipe import load_draft_at, load_target, request_slot, temperature_of
from .residual import law_of_row, log_difference, log_probs
from .rows import load_statistics, target_samples
from .verdicts import BONUS, REJECTED


@triton.jit
def recovered_token(
    target,
    draft,
    requests,
    adjust,
    scratch,
    request,
    start,
    row,
    largest,
    masses,
    inverse_temperature,
    draft_inverse,
    log_product,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A draw from max(P p - q, 0), whose block statistics are given: scalar int32."""
    seed = tl.load(requests.seeds + request)
    only = row + tl.zeros([1], tl.int32)
    position = tl.load(requests.positions + request).to(tl.int32) + only
    winner = block_winner(largest, masses, 1.0, False, seed, position, only + 1, RECOVER)
    token_id = winner[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    target_slot = request.to(tl.int64) * ROWS + row
    logits = load_target(target, adjust, requests, request, start, row, token_id, NUM_DRAFTS)
    log_p = log_probs(logits, law_of_row(scratch, target_slot, inverse_temperature)) + log_product
    slot = request_slot(requests, request)
    logits = load_draft_at(draft, slot, row, token_id, target.vocab_size)
    law = law_of_row(scratch, target_slot + NUM_DRAFTS + 1, draft_inverse)
    weights = log_difference(log_p, log_probs(logits, law))
    scores = weights - token_noise(seed, position, only + 1, RECOVER, winner)
    return tl.max(lowest_argmax(scores, token_id), 0)


@triton.jit
def last_token(
    target,
    draft,
    requests,
    adjust,
    scratch,
    request,
    start,
    halt,
    kind,
    num_drafts,
    inverse_temperature,
    draft_inverse,
    one_hot,
    residual,
    log_product,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The recovered or bonus token of a policy that tests p against q: scalar int32."""
    row = halt + tl.zeros([1], tl.int32)
    recover = kind == REJECTED
    token = halt * 0 - 1
    if draft.logits is not None:
        if recover & (one_hot == 0):
            pointer = scratch.residual + (row * 0 + residual).to(tl.int64) * 2 * scratch.num_blocks
            largest, masses = load_statistics(
                pointer, scratch.num_blocks, scratch.num_blocks, row >= 0, True, WIDTH
            )
            if tl.max(tl.max(masses, 1), 0) > 0.0:
                token = recovered_token(
                    target,
                    draft,
                    requests,
                    adjust,
                    scratch,
                    request,
                    start,
                    halt,
                    largest,
                    masses,
                    inverse_temperature,
                    draft_inverse,
                    log_product,
                    NUM_DRAFTS,
                    ROWS,
                )
    if token < 0:
        # A bonus token; or the draft is one-hot, or rounding left nothing of p - q: then the draw
        # is from p without the rejected token.
        slot = (request * ROWS + row).to(tl.int64)
        largest, masses = load_statistics(
            scratch.statistics + slot * 2 * scratch.num_blocks,
            scratch.num_blocks,
            scratch.num_blocks,
            row >= 0,
            True,
            WIDTH,
        )
        rejected = tl.where(recover, drafted_tokens(requests, request, row, num_drafts), -1)
        samples = target_samples(
            target,
            adjust,
            requests,
            scratch,
            request,
            start,
            row,
            row >= 0,
            largest,
            masses,
            inverse_temperature,
            False,
            tl.where(recover, RECOVER, TARGET),
            tl.where(recover, row + 1, 0),
            rejected,
            NUM_DRAFTS,
            ROWS,
            False,
        )
        token = tl.max(samples, 0)
    return token


@triton.jit
def tested_draft(
    target,
    draft,
    requests,
    adjust,
    draft_recipe,
    scratch,
    request,
    start,
    num_rows,
    num_drafts,
    inverse_temperature,
    POLICY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A policy that tests p against q: (row, why it ended, token)."""
    draft_inverse, one_hot = temperature_of(draft_recipe, request)
    if POLICY == "block":
        halt, kind, log_product = decide_block(
            target,
            draft,
            requests,
            adjust,
            scratch,
            request,
            start,
            num_rows,
            num_drafts,
            inverse_temperature,
            draft_inverse,
            one_hot,
            NUM_DRAFTS,
            ROWS,
            WIDTH,
        )
        residual = request * NUM_DRAFTS + halt
    else:
        halt, kind = decide_probabilistic(
            target,
            draft,
            requests,
            adjust,
            scratch,
            request,
            start,
            num_rows,
            num_drafts,
            inverse_temperature,
            draft_inverse,
            one_hot,
            NUM_DRAFTS,
            ROWS,
        )
        log_product = 0.0
        residual = request
    token = halt * 0 - 1
    if kind <= BONUS:
        token = last_token(
            target,
            draft,
            requests,
            adjust,
            scratch,
            request,
            start,
            halt,
            kind,
            num_drafts,
            inverse_temperature,
            draft_inverse,
            one_hot,
            residual,
            log_product,
            NUM_DRAFTS,
            ROWS,
            WIDTH,
        )
    return halt, kind, token
