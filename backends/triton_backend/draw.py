"""Stage 5: the last token of every request, and everything that is returned about it.

This module refuses to read a row twice: of each it needs one block.
"""

import triton
import triton.language as tl

from .accept import decide_at_rates, decide_strict, open_draft
from .drawable_rows import arrivals_of_rows
from .outputs import write_outputs
from .overlap import wait_for_stage_before
from .race import block_arrivals
from .random_bits import TARGET
from .recipe import first_row, num_usable_drafts, temperature_of
from .rivals import forget_rivals
from .rows import load_statistics, target_samples
from .tested import tested_draft
from .verdicts import BONUS

MOST_AHEAD = tl.constexpr(4)
"""Rows that are read before it is known which of them is drawn from."""


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
    OVERLAPS: tl.constexpr,
):
    """One program per request; a greedy request is strict, except under set rates."""
    request = tl.program_id(0)
    inverse, greedy = temperature_of(target_recipe, request)
    start, num_rows = first_row(target, request)
    num_drafts, flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
    arrivals = None
    if POLICY == "probabilistic" or POLICY == "block":  # noqa: PLR1714 (no sets in kernels)
        draft_inverse, one_hot = temperature_of(draft_recipe, request)
        drafted = open_draft(
            target,
            draft,
            requests,
            adjust,
            request,
            start,
            num_rows,
            num_drafts,
            one_hot,
            0 if POLICY == "block" else 1,
            NUM_DRAFTS,
        )
        if draft.logits is not None and NUM_DRAFTS < MOST_AHEAD:
            arrivals = arrivals_of_rows(requests, request, num_drafts, NUM_DRAFTS, WIDTH)
    elif POLICY == "strict" and not ALL_GREEDY and NUM_DRAFTS < CHUNK:
        row = tl.arange(0, CHUNK)
        seed = tl.load(requests.seeds + request)
        position = tl.load(requests.positions + request).to(tl.int32) + row
        arrivals = block_arrivals(seed, position, row * 0 + draft_index, stream, WIDTH)
    wait_for_stage_before(OVERLAPS)
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
                arrivals if POLICY == "strict" else None,
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
                scratch,
                request,
                start,
                num_rows,
                num_drafts,
                drafted,
                arrivals,
                inverse,
                draft_inverse,
                one_hot,
                POLICY,
                NUM_DRAFTS,
                ROWS,
                WIDTH,
            )
    if scratch.rivals is not None:
        tl.debug_barrier()
        forget_rivals(scratch, request, NUM_DRAFTS)
    write_outputs(
        outputs, requests, request, halt, kind, token, flagged, num_drafts, NUM_DRAFTS, INVALID
    )
