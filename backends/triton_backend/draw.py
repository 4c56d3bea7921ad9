"""Stage 5: the last token of every request, and everything that is returned about it.

This module refuses to read a row twice: of each it needs one block.
"""

import triton
import triton.language as tl

from .accept import (
    decide_at_rates,
    decide_probabilistic,
    decide_strict,
    drafted_tokens,
)
from .block import decide_block
from .race import BLOCK, block_winner, lowest_argmax, token_noise
from .random_bits import RECOVER, TARGET
from .recipe import (
    first_row,
    load_draft_at,
    load_target,
    num_usable_drafts,
    request_slot,
    temperature_of,
)
from .residual import law_of_row, log_difference, log_probs
from .rows import load_statistics, target_samples
from .verdicts import BONUS, REJECTED, STOP_DRAFT, STOP_TARGET


@triton.jit
def write_outputs(
    outputs,
    requests,
    request,
    halt,
    kind,
    token,
    flagged,
    num_drafts,
    NUM_DRAFTS: tl.constexpr,
    INVALID: tl.constexpr,
):
    """Write the accepted tokens, the last one, -1 behind it, the count and the status."""
    PLACES: tl.constexpr = triton.next_power_of_2(NUM_DRAFTS + 1)
    place = tl.arange(0, PLACES)
    emitted = tl.where((kind == REJECTED) | (kind == BONUS), token, -1)
    ids = tl.where(place == halt, emitted, -1)
    if NUM_DRAFTS > 0:
        ids = tl.where(place < halt, drafted_tokens(requests, request, place, num_drafts), ids)
    out = outputs.token_ids + request.to(tl.int64) * (NUM_DRAFTS + 1) + place
    tl.store(out, ids.to(tl.int64), mask=place <= NUM_DRAFTS)
    if outputs.num_accepted is not None:
        tl.store(outputs.num_accepted + request, halt)
    stopped = tl.where(kind == STOP_TARGET, INVALID, 0) + tl.where(kind == STOP_DRAFT, 2, 0)
    tl.store(outputs.status + request, stopped + flagged * 4)


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


@triton.jit
def rated_draft(
    target,
    requests,
    adjust,
    scratch,
    request,
    start,
    num_rows,
    num_drafts,
    inverse_temperature,
    greedy,
    RATES: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    ALL_GREEDY: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A policy with set rates: (row, why it ended, token)."""
    halt, kind = decide_at_rates(
        scratch, requests, request, num_rows, num_drafts, RATES, NUM_DRAFTS, ROWS
    )
    row = halt + tl.zeros([1], tl.int32)
    slot = (request * ROWS + row).to(tl.int64)
    valid = (row * 0 + kind) <= BONUS
    largest, masses = load_statistics(
        scratch.statistics + slot * 2 * scratch.num_blocks,
        scratch.num_blocks,
        scratch.num_blocks,
        valid,
        not ALL_GREEDY,
        WIDTH,
    )
    samples = target_samples(
        target,
        adjust,
        requests,
        scratch,
        request,
        start,
        row,
        valid,
        largest,
        masses,
        inverse_temperature,
        greedy,
        TARGET,
        row * 0,
        None,
        NUM_DRAFTS,
        ROWS,
        ALL_GREEDY,
    )
    return halt, kind, tl.max(samples, 0)


@triton.jit
def draw_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    outputs,
    stream,
    draft_index,
    POLICY: tl.constexpr,
    RATES: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    ANY_GREEDY: tl.constexpr,
    ALL_GREEDY: tl.constexpr,
    INVALID: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One program per request; a greedy request is strict, except under set rates."""
    request = tl.program_id(0)
    inverse, greedy = temperature_of(target_recipe, request)
    start, num_rows = first_row(target, request)
    num_drafts, flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
    halt = num_drafts * 0
    kind = halt
    token = halt
    if POLICY == "rates":
        halt, kind, token = rated_draft(
            target,
            requests,
            adjust,
            scratch,
            request,
            start,
            num_rows,
            num_drafts,
            inverse,
            greedy,
            RATES,
            NUM_DRAFTS,
            ROWS,
            ALL_GREEDY,
            WIDTH,
        )
    else:
        is_strict = POLICY == "strict"
        if ANY_GREEDY:
            is_strict = is_strict | greedy
        if is_strict:
            halt, kind, token = decide_strict(
                target,
                requests,
                adjust,
                scratch,
                request,
                start,
                num_rows,
                num_drafts,
                inverse,
                greedy,
                stream,
                draft_index,
                NUM_DRAFTS,
                ROWS,
                ALL_GREEDY,
                CHUNK,
                WIDTH,
            )
        elif POLICY != "strict":
            halt, kind, token = tested_draft(
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
                inverse,
                POLICY,
                NUM_DRAFTS,
                ROWS,
                WIDTH,
            )
    write_outputs(
        outputs, requests, request, halt, kind, token, flagged, num_drafts, NUM_DRAFTS, INVALID
    )
