"""Stages 3 to 5 of block verification: products of ratios, residuals of rows, the last success.

This module refuses one thing: to stop at the first failure.
"""

import triton
import triton.language as tl

from .accept import draft_ratios, open_draft
from .overlap import let_next_stage_start, wait_for_stage_before
from .quarters import draft_quarters_at, target_quarters
from .race import NEVER
from .recipe import (
    first_row,
    num_usable_drafts,
    request_slot,
    temperature_of,
)
from .residual import law_at, residual_statistics
from .rows import load_statistics
from .verdicts import BONUS, REJECTED, STOP_DRAFT, STOP_TARGET, at_row

ROWS_AT_ONCE = tl.constexpr(4)
SLACK = tl.constexpr(1e-4)
"""More than rounding changes in a logarithm of a sum of probabilities."""


@triton.jit
def log_products(log_ratios, row, NUM_DRAFTS: tl.constexpr):
    """log P_i before each row: [rows] float32, P_0 = 1, cut at 1 after every factor."""
    products = row.to(tl.float32) * 0.0
    product = tl.max(products, 0) * 0.0
    for place in tl.static_range(NUM_DRAFTS):
        ratio = at_row(log_ratios, row, place)
        # Once 0, a product stays 0, also when the next token had no draft probability.
        product = tl.where(product > NEVER, tl.minimum(product + ratio, 0.0), product)
        products = tl.where(row == place + 1, product, products)
    return products


@triton.jit
def kept_drafts(row, num_drafts, target_usable, draft_usable):
    """The draft up to the first unusable row, and why it ends there."""
    bad = (target_usable == 0) | ((draft_usable == 0) & (row < num_drafts))
    first_bad = tl.min(tl.where(bad, row, 2147483647), 0)
    num_kept = tl.minimum(num_drafts, first_bad)
    target_good = at_row(target_usable.to(tl.int32), row, num_kept) != 0
    kind = tl.where(num_kept < num_drafts, STOP_DRAFT, BONUS)
    return num_kept, tl.where(target_good, kind, STOP_TARGET)


@triton.jit
def may_halt(drafted, num_kept, products):
    """Where the draft may end before its end, which the residual's mass decides: [rows].

    A row's threshold is not above its product, as p and q sum up to 1; and nobody asks if the whole
    draft survives. What a rounded sum may change is left open.
    """
    row = drafted.row
    whole = (row == num_kept) & (drafted.log_uniform < products - SLACK)
    survives = (num_kept > 0) & (tl.max(whole.to(tl.int32), 0) != 0)
    possible = (row > 0) & (drafted.log_uniform < products + SLACK)
    return possible & (row < num_kept) & (survives == 0)


@triton.jit
def block_residual_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Block statistics of max(P p - q, 0) behind every row but the first.

    Programs (request and row, part). Row 0 is not asked whether the draft may end there.
    """
    let_next_stage_start(OVERLAPS)
    request = tl.program_id(0) // (NUM_DRAFTS - 1)
    place = tl.program_id(0) % (NUM_DRAFTS - 1) + 1
    inverse, greedy = temperature_of(target_recipe, request)
    draft_inverse, one_hot = temperature_of(draft_recipe, request)
    start, num_rows = first_row(target, request)
    num_drafts, _flagged = num_usable_drafts(target, requests, request, num_rows, NUM_DRAFTS)
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
        0,
        NUM_DRAFTS,
    )
    slot = request_slot(requests, request)
    wait_for_stage_before(OVERLAPS)
    log_ratios, _log_p, target_usable, draft_usable, laws, draft_laws = draft_ratios(
        draft, scratch, request, drafted, inverse, draft_inverse, NUM_DRAFTS, ROWS
    )
    row = drafted.row
    num_kept, _kind = kept_drafts(row, num_drafts, target_usable, draft_usable)
    products = log_products(log_ratios, row, NUM_DRAFTS)
    log_product = at_row(products, row, place)
    possible = at_row(may_halt(drafted, num_kept, products).to(tl.int32), row, place)
    asked = (possible != 0) & (one_hot == 0) & (greedy == 0)
    target_law = law_at(laws, row, place, inverse)
    draft_law = law_at(draft_laws, row, place, draft_inverse)
    out = scratch.residual + tl.program_id(0).to(tl.int64) * 2 * scratch.num_blocks
    num_tiles = tl.cdiv(scratch.num_blocks, TILE)
    for tile in range(tl.program_id(1), num_tiles, tl.num_programs(1)):
        block = tile * TILE + tl.arange(0, TILE)
        largest = tl.full([TILE], NEVER, tl.float32)
        mass = tl.zeros([TILE], tl.float32)
        if asked:
            target_logits = target_quarters(
                target, adjust, requests, request, start, place, block, NUM_DRAFTS
            )
            draft_logits = draft_quarters_at(draft, slot, place, block, target.vocab_size)
            largest, mass = residual_statistics(
                target_logits, target_law, log_product, draft_logits, draft_law
            )
        inside = block < scratch.num_blocks
        tl.store(out + block, largest, mask=inside)
        tl.store(out + scratch.num_blocks + block, mass, mask=inside)


@triton.jit
def residual_rows(scratch, request, first, NUM_DRAFTS: tl.constexpr, WIDTH: tl.constexpr):
    """Block statistics of the residuals of rows from the first: two [ROWS_AT_ONCE, WIDTH]."""
    row = first + tl.arange(0, ROWS_AT_ONCE)
    slot = (request * (NUM_DRAFTS - 1) + row - 1).to(tl.int64)
    return load_statistics(
        scratch.residual + slot * 2 * scratch.num_blocks,
        scratch.num_blocks,
        scratch.num_blocks,
        (row > 0) & (row < NUM_DRAFTS),
        True,
        WIDTH,
    )


@triton.jit
def residual_masses(statistics, row, first):
    """The mass Z of max(P p - q, 0) at rows from the first, 0 at others: [rows]."""
    largest, shares = statistics
    masses = tl.sum((tl.exp(largest) * shares).to(tl.float64), 1).to(tl.float32)
    place = first + tl.arange(0, ROWS_AT_ONCE)
    return tl.sum(tl.where(row[:, None] == place[None, :], masses[None, :], 0.0), 1)


@triton.jit
def decide_block(
    draft,
    scratch,
    request,
    drafted,
    num_drafts,
    inverse_temperature,
    draft_inverse,
    one_hot,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The whole draft is judged together: (row, why it ended, log P there, both laws)."""
    row = drafted.row
    if scratch.residual is not None:
        residuals = residual_rows(scratch, request, 0, NUM_DRAFTS, WIDTH)
    log_ratios, log_p, target_usable, draft_usable, laws, draft_laws = draft_ratios(
        draft, scratch, request, drafted, inverse_temperature, draft_inverse, NUM_DRAFTS, ROWS
    )
    num_kept, kind = kept_drafts(row, num_drafts, target_usable, draft_usable)
    products = log_products(log_ratios, row, NUM_DRAFTS)
    masses = tl.exp(products) * (1.0 - tl.exp(log_p))
    if scratch.residual is not None:
        dense_masses = residual_masses(residuals, row, 0)
        for first in tl.static_range(ROWS_AT_ONCE, NUM_DRAFTS, ROWS_AT_ONCE):
            residuals = residual_rows(scratch, request, first, NUM_DRAFTS, WIDTH)
            dense_masses += residual_masses(residuals, row, first)
        masses = tl.where(one_hot == 0, dense_masses, masses)
    masses = tl.where(row < num_kept, masses, 0.0)
    # Row i decides whether the draft survives through token i, so row 0 is never asked.
    rest = 1.0 - tl.exp(products)
    both = masses + rest
    log_h = tl.where(both > 0.0, tl.log(masses) - tl.log(both), 0.0)
    threshold = tl.where(row == num_kept, products, log_h)
    success = (drafted.log_uniform < threshold) & (row > 0) & (row <= num_kept)
    halt = tl.max(tl.where(success, row, 0), 0)
    kind = tl.where(halt == num_kept, kind, REJECTED)
    return halt, kind, at_row(products, row, halt), laws, draft_laws
