"""Stages 3 and 5 of policies that test p against q: what stands, and the token behind it.

This module refuses to know about greedy requests: they are strict.
"""

import triton
import triton.language as tl

from .accept import decide_probabilistic, drafted_tokens
from .block import decide_block
from .race import BLOCK, NEVER, block_arrivals, block_winner, lowest_argmax, token_arrivals
from .random_bits import RECOVER, TARGET
from .recipe import load_draft_at, load_target, request_slot
from .residual import excess, law_at
from .rows import load_statistics, target_samples
from .verdicts import BONUS, REJECTED


@triton.jit
def drawn_token(
    target,
    draft,
    requests,
    adjust,
    scratch,
    request,
    start,
    row,
    recover,
    largest,
    masses,
    target_law,
    draft_law,
    log_product,
    NUM_DRAFTS: tl.constexpr,
):
    """A draw from max(P p - q, 0), or from p: scalar int32, -1 where nothing has any mass.

    Args:
        target, draft, requests, adjust, scratch: see `arguments`.
        request, start, row: scalars, the request, its first row of logits and which of its rows.
        recover: whether q is subtracted.
        largest, masses: [1, num_blocks], block statistics of what is drawn from.
        target_law, draft_law: see `law_at`.
        log_product: log P.
        NUM_DRAFTS: see `statistics_kernel`.
    """
    seed = tl.load(requests.seeds + request)
    only = row + tl.zeros([1], tl.int32)
    position = tl.load(requests.positions + request).to(tl.int32) + only
    index = tl.where(recover, only + 1, 0)
    stream = tl.where(recover, RECOVER, TARGET)
    _row_max, _log_total, inverse_temperature, _threshold = target_law
    arrivals = block_arrivals(seed, position, index, stream, largest.shape[1])
    scale = tl.where(recover, 1.0, inverse_temperature)
    winner = block_winner(largest, masses, scale, False, arrivals)
    winner = tl.minimum(winner, scratch.num_blocks - 1)
    token_id = winner[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    target_logits = load_target(target, adjust, requests, request, start, row, token_id, NUM_DRAFTS)
    slot = request_slot(requests, request)
    subtracted = tl.where(recover, token_id, -1)
    draft_logits = load_draft_at(draft, slot, row, subtracted, target.vocab_size)
    arrivals = token_arrivals(seed, position, index, stream, winner)
    log_p, share = excess(target_logits, target_law, log_product, draft_logits, draft_law)
    weights = tl.exp(log_p - tl.max(log_p, 1)[:, None]) * share
    scores = tl.where(log_p > NEVER, weights / arrivals, NEVER)
    token = tl.max(lowest_argmax(scores, token_id), 0)
    return tl.where(tl.max(tl.max(masses, 1), 0) > 0.0, token, -1)


@triton.jit
def sampled_token(
    target,
    requests,
    adjust,
    scratch,
    request,
    start,
    halt,
    recover,
    num_drafts,
    inverse_temperature,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A draw from p, without the rejected token if there is one: scalar int32."""
    row = halt + tl.zeros([1], tl.int32)
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
        None,
        NUM_DRAFTS,
        ROWS,
        False,
    )
    return tl.max(samples, 0)


@triton.jit
def tested_draft(
    target,
    draft,
    requests,
    adjust,
    scratch,
    request,
    start,
    num_rows,
    num_drafts,
    drafted,
    inverse_temperature,
    draft_inverse,
    one_hot,
    POLICY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A policy that tests p against q: (row, why it ended, token); see `open_draft`."""
    blocks, only = scratch.num_blocks, tl.zeros([1], tl.int64)
    if scratch.residual is not None:
        # Read what may be needed before it is known, rather than wait twice.
        slot = only + request * ROWS + num_drafts
        largest, masses = load_statistics(
            scratch.statistics + slot * 2 * blocks,
            blocks,
            blocks,
            num_drafts < num_rows,
            True,
            WIDTH,
        )
        if POLICY != "block":
            recovered, recovered_masses = load_statistics(
                scratch.residual + (only + request) * 2 * blocks,
                blocks,
                blocks,
                only >= 0,
                True,
                WIDTH,
            )
    if POLICY == "block":
        halt, kind, log_product, laws, draft_laws = decide_block(
            draft,
            scratch,
            request,
            drafted,
            num_drafts,
            inverse_temperature,
            draft_inverse,
            one_hot,
            NUM_DRAFTS,
            ROWS,
            WIDTH,
        )
        if scratch.residual is not None:
            slot = only + request * NUM_DRAFTS + tl.minimum(halt, NUM_DRAFTS - 1)
            recovered, recovered_masses = load_statistics(
                scratch.residual + slot * 2 * blocks, blocks, blocks, only >= 0, True, WIDTH
            )
    else:
        halt, kind, laws, draft_laws = decide_probabilistic(
            draft,
            scratch,
            request,
            drafted,
            num_drafts,
            inverse_temperature,
            draft_inverse,
            NUM_DRAFTS,
            ROWS,
        )
        log_product = 0.0
    token = halt * 0 - 1
    recover = kind == REJECTED
    if scratch.residual is not None:
        if (kind == BONUS) | (recover & (one_hot == 0)):
            token = drawn_token(
                target,
                draft,
                requests,
                adjust,
                scratch,
                request,
                start,
                halt,
                recover,
                tl.where(recover, recovered, largest),
                tl.where(recover, recovered_masses, masses),
                law_at(laws, drafted.row, halt, inverse_temperature),
                law_at(draft_laws, drafted.row, halt, draft_inverse),
                log_product,
                NUM_DRAFTS,
            )
    if (token < 0) & (kind <= BONUS):
        # The draft is one-hot, or rounding left nothing of p - q.
        token = sampled_token(
            target,
            requests,
            adjust,
            scratch,
            request,
            start,
            halt,
            recover,
            num_drafts,
            inverse_temperature,
            NUM_DRAFTS,
            ROWS,
            WIDTH,
        )
    return halt, kind, token
