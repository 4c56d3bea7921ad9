"""Block verification: products of ratios, masses of residuals, the last success.

This module refuses one thing: to stop at the first failure.

Sun et al., "Block verification accelerates speculative decoding", arXiv 2403.10444.
"""

import triton
import triton.language as tl

from .race import NEVER
from .random_bits import log_acceptance_uniform
from .request import noise_key
from .row_draw import load_blocks
from .verdicts import at_row

MARGIN = tl.constexpr(1e-3)
"""Far more than rounding can move the logarithm of a threshold above that of its product."""


@triton.jit
def load_ratios(call, request, num_kept):
    """Of each row: its index, log P before it, log p of its draft token, log of its uniform."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    place = (request.index.to(tl.int64) * (NUM_DRAFTS + 1) + row) * 2
    kept = row < num_kept
    ratios = tl.load(call.scratch.ratios + place, mask=kept, other=0.0)
    log_p = tl.load(call.scratch.ratios + place + 1, mask=kept, other=0.0)
    seed, position = noise_key(call, request, row - 1)
    log_u = log_acceptance_uniform(seed, position, row)
    return row, log_products(ratios, row, NUM_DRAFTS), log_p, log_u


@triton.jit
def log_products(log_ratios, row, NUM_DRAFTS: tl.constexpr):
    """log P before each row: [rows] float32, P_0 = 1, cut at 1 after every factor."""
    products = row.to(tl.float32) * 0.0
    product = tl.max(products, 0) * 0.0
    for place in tl.static_range(NUM_DRAFTS):
        ratio = at_row(log_ratios, row, place)
        # Once 0, a product stays 0, also when the next token had no draft probability.
        product = tl.where(product > NEVER, tl.minimum(product + ratio, 0.0), product)
        products = tl.where(row == place + 1, product, products)
    return products


@triton.jit
def residual_needed(row, chosen, num_kept, products, log_u):
    """Whether the residual of a row can be asked for.

    Not if the whole draft survives, nor if the row's own threshold, which is never above its
    product, must fail: then the draft ends before this row or behind it.
    """
    survives = at_row((log_u < products).to(tl.int32), row, num_kept)
    possible = at_row((log_u < products + MARGIN).to(tl.int32), row, chosen)
    return (chosen < num_kept) & (survives == 0) & ((possible != 0) | (chosen == 0))


@triton.jit
def residual_mass(call, residual):
    """The mass Z of a residual whose block statistics are known."""
    largest, shares = load_blocks(
        call.scratch.residual, residual.to(tl.int64), call.scratch, True, call.variant.width
    )
    return tl.sum((tl.exp(largest) * shares).to(tl.float64), 0).to(tl.float32)


@triton.jit
def log_threshold(product, mass):
    """log h of a row that is not the last, from log P before it and Z."""
    rest = 1.0 - tl.exp(product)
    both = mass + rest
    return tl.where(both > 0.0, tl.log(mass) - tl.log(both), 0.0)


@triton.jit
def last_success(call, request, num_kept):
    """The last row that the draft survives up to, and log P before it."""
    row, products, log_p, log_u = load_ratios(call, request, num_kept)
    masses = tl.exp(products) * (1.0 - tl.exp(log_p))
    if call.draft.logits is not None:
        if request.dense:
            for place in tl.static_range(1, call.variant.num_drafts):
                if residual_needed(row, place, num_kept, products, log_u):
                    mass = residual_mass(call, request.index * call.variant.num_drafts + place)
                    masses = tl.where(row == place, mass, masses)
                else:
                    masses = tl.where(row == place, 0.0, masses)
    threshold = tl.where(row == num_kept, products, log_threshold(products, masses))
    success = (log_u < threshold) & (row > 0) & (row <= num_kept)
    halt = tl.max(tl.where(success, row, 0), 0)
    return halt, at_row(products, row, halt)
