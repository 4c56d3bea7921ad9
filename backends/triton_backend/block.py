"""Block verification, after rows have been judged: judges the whole draft together."""

import triton
import triton.language as tl

from .accept import SURVIVED, load_sum, open_draft, sums_of, test_draft
from .adjust import value_at
from .device import wait_for_stage_before
from .draw import certain_token, drawable_statistics, set_up
from .logits import NEVER
from .outputs import ENDS, first_halt, write_outputs
from .quarters import TILE
from .random_bits import log_acceptance_uniform
from .records import law_of, load_decisions
from .rows import open_request, open_row, temperature_of
from .units import in_units

SLACK = tl.constexpr(1e-4)
"""More than rounding can change the logarithm of a sum of probabilities."""


@triton.jit
def block_stage(call, num_parts, tiles_per_part):
    """A program per part of a row after row 0: sums the mass of its max(P p - q, 0).

    Only rows where the draft may end are summed. Row 0 is not: the draft ends there if at no other.
    The last program to finish a request concludes it.
    """
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    STEPS: tl.constexpr = max(NUM_DRAFTS - 1, 1)
    part = tl.program_id(0) % num_parts
    index = tl.program_id(0) // num_parts // STEPS
    place = tl.program_id(0) // num_parts % STEPS + 1
    request = open_request(call, index)
    one_hot = index >= 0
    if call.draft.logits is not None:
        one_hot = temperature_of(call, call.draft_recipe, index) == 0.0
    wait_for_stage_before(call)
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    kinds, tokens, ratios, log_p = load_decisions(call, index, row)
    num_kept, kind = first_halt(row, kinds)
    products = _log_products(ratios, row, NUM_DRAFTS)
    uniforms = log_acceptance_uniform(request.seed, request.position + row - 1, row)
    asked = value_at(_may_halt(row, num_kept, products, uniforms).to(tl.int32), row, place)
    if (asked != 0) & (one_hot == 0) & (request.greedy == 0):
        draw, target_row = _residual(call, request, place, value_at(products, row, place))
        first = part * tiles_per_part
        last = tl.minimum(first + tiles_per_part, tl.cdiv(call.scratch.num_blocks, TILE))
        total = index.to(tl.int64) * 0
        for tile in range(first, last):
            block = tile * TILE + tl.arange(0, TILE)
            largest, mass = drawable_statistics(call, target_row, draw, block)
            total += tl.sum(in_units(tl.exp(largest) * mass), 0)
        tl.atomic_add(sums_of(call, index, place) + SURVIVED, total, sem="relaxed")
    tl.debug_barrier()
    if tl.atomic_add(call.scratch.arrivals + index, 1) == num_parts * STEPS - 1:
        masses = tl.exp(products) * (1.0 - tl.exp(log_p))
        if one_hot == 0:
            masses = load_sum(call, index, row, SURVIVED)
        halt = _last_success(row, num_kept, products, masses, uniforms)
        halt = tl.where(request.greedy, num_kept, halt)
        token = value_at(tokens, row, num_kept)
        if halt < num_kept:
            kind = halt * 0 + ENDS
            draw, target_row = _residual(call, request, halt, value_at(products, row, halt))
            token = certain_token(call, target_row, draw)
        write_outputs(call, request, halt, kind, token)


@triton.jit
def _residual(call, request, place, log_product):
    """Set up a draw from max(P p - q, 0), or p without a one-hot draft's token: it, and the row."""
    row = open_row(call, request.index * call.variant.num_rows + place)
    law, _usable = law_of(call, row)
    drafted = open_draft(call, row, place < request.num_drafts)
    test = test_draft(call, row, law, drafted, place < request.num_drafts)
    return set_up(call, request, row, law, test, place >= 0, log_product), row


@triton.jit
def _log_products(log_ratios, row, NUM_DRAFTS: tl.constexpr):
    """log P_i before each row: [rows] float32, P_0 = 1, cut at 1 after every factor."""
    products = row.to(tl.float32) * 0.0
    product = tl.max(products, 0) * 0.0
    for place in tl.static_range(NUM_DRAFTS):
        ratio = value_at(log_ratios, row, place)
        # A product that is 0 stays 0, even if the next token had no draft probability.
        product = tl.where(product > NEVER, tl.minimum(product + ratio, 0.0), product)
        products = tl.where(row == place + 1, product, products)
    return products


@triton.jit
def _may_halt(row, num_kept, products, uniforms):
    """Rows where the draft may end early, which the residual's mass decides: [rows].

    A row's threshold is at most its product, because p and q sum to 1. If the whole draft survives,
    no row is asked. Rows that a rounded sum could change count, too.
    """
    whole = (row == num_kept) & (uniforms < products - SLACK)
    survives = (num_kept > 0) & (tl.max(whole.to(tl.int32), 0) != 0)
    return (row > 0) & (uniforms < products + SLACK) & (row < num_kept) & (survives == 0)


@triton.jit
def _last_success(row, num_kept, products, masses, uniforms):
    """The last token through which the draft survives: row i decides about token i."""
    rest = 1.0 - tl.exp(products)
    both = masses + rest
    log_h = tl.where(both > 0.0, tl.log(masses) - tl.log(both), 0.0)
    threshold = tl.where(row == num_kept, products, log_h)
    success = (uniforms < threshold) & (row > 0) & (row <= num_kept)
    return tl.max(tl.where(success, row, 0), 0)
