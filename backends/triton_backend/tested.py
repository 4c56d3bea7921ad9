"""Stages 3 and 5 of policies that test p against q: what stands, and the token behind it.

This module refuses to know about greedy requests: they are strict.
"""

import triton
import triton.language as tl

from .accept import decide_probabilistic, drafted_tokens, rows_of
from .block import decide_block
from .drawable_rows import block_scores, row_of, statistics_of_rows
from .race import BLOCK, NEVER, block_arrivals, lowest_argmax, token_arrivals
from .random_bits import RECOVER, TARGET
from .recipe import load_draft_at, load_target, request_slot
from .recovered import recovered_block
from .residual import excess, law_at
from .rivals import first_end
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
    target_law,
    draft_law,
    log_product,
    all_statistics,
    all_arrivals,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A draw from max(P p - q, 0), or from p: scalar int32, -1 where nothing has any mass.

    Args:
        target, draft, requests, adjust, scratch: see `arguments`.
        request, start, row: scalars, the request, its first row of logits and which of its rows.
        recover: whether q is subtracted.
        target_law, draft_law: see `law_at`.
        log_product: log P.
        all_statistics, all_arrivals: of all rows, see `statistics_of_rows` and `arrivals_of_rows`;
            None to get the row's here.
        NUM_DRAFTS, ROWS: see `statistics_kernel`.
        WIDTH: at least as many as blocks.
    """
    only = row + tl.zeros([1], tl.int32)
    seed = tl.load(requests.seeds + request)
    position = tl.load(requests.positions + request).to(tl.int32) + only
    index = tl.where(recover, only + 1, 0)
    stream = tl.where(recover, RECOVER, TARGET)
    if all_arrivals is None:
        largest, masses = load_statistics(
            scratch.statistics + (request * ROWS + only).to(tl.int64) * 2 * scratch.num_blocks,
            scratch.num_blocks,
            scratch.num_blocks,
            only >= 0,
            True,
            WIDTH,
        )
        arrivals = block_arrivals(seed, position, index, stream, WIDTH)
    else:
        all_largest, all_masses = all_statistics
        largest = row_of(all_largest, row)
        masses = row_of(all_masses, row)
        arrivals = row_of(all_arrivals, row)
    scores = block_scores(largest, masses, target_law, arrivals)
    block = tl.broadcast_to(tl.arange(0, WIDTH)[None, :], scores.shape)
    winner = tl.max(lowest_argmax(scores, block), 0)
    if recover:
        _row_max, log_total, _inverse, _threshold = target_law
        winner = recovered_block(
            target,
            draft,
            requests,
            adjust,
            request,
            start,
            row,
            scores * tl.exp(log_product - log_total),
            arrivals,
            target_law,
            draft_law,
            log_product,
            NUM_DRAFTS,
        )
    found = winner < scratch.num_blocks
    winner = only * 0 + tl.where(found, winner, 0)
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
    return tl.where(found, token, -1)


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
    all_arrivals,
    inverse_temperature,
    draft_inverse,
    one_hot,
    POLICY: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A policy that tests p against q: (row, why it ended, token).

    `drafted` is what `open_draft` returns, `all_arrivals` what `arrivals_of_rows` does, or None.
    """
    if scratch.rivals is not None:
        # Rows behind it may not have been read.
        num_rows = tl.minimum(num_rows, 1 + first_end(scratch, request, NUM_DRAFTS, NUM_DRAFTS))
        drafted = rows_of(drafted, num_rows)
    all_statistics = None
    if all_arrivals is not None:
        all_statistics = statistics_of_rows(
            scratch, request, num_drafts, num_rows, NUM_DRAFTS, ROWS, WIDTH
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
        log_product = halt * 0.0
    token = halt * 0 - 1
    recover = kind == REJECTED
    if draft.logits is not None:
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
                law_at(laws, drafted.row, halt, inverse_temperature),
                law_at(draft_laws, drafted.row, halt, draft_inverse),
                log_product,
                all_statistics,
                all_arrivals,
                NUM_DRAFTS,
                ROWS,
                WIDTH,
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
