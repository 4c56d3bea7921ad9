"""Block statistics: per block of 512 tokens its maximum, and its mass relative to that.

Everything stands on these numbers. This module refuses to know about drafts and policies.
"""

import triton
import triton.language as tl

from .race import BLOCK, NEVER
from .recipe import LOG2_E

SPAN = tl.constexpr(128)
PARTS = tl.constexpr(4)


@triton.jit
def block_token_ids(block):
    """Token ids of blocks: [PARTS, blocks, SPAN].

    A span is what 16 lanes of 8 logits read at once. A few lanes own a whole block, so that little
    is left to be summed between lanes, and nothing between warps.
    """
    part = tl.arange(0, PARTS)[:, None, None] * SPAN
    return block[None, :, None] * BLOCK + part + tl.arange(0, SPAN)[None, None, :]


@triton.jit
def block_statistics(logits, inverse_temperature):
    """Largest logit and mass relative to it: [PARTS, blocks, SPAN] -> [blocks], [blocks].

    A NaN or +inf makes the mass NaN. Additions are paired in one fixed order, so the mass does not
    depend on the launch shape or on what else the kernel was compiled for.
    """
    largest = tl.max(tl.max(logits, 2), 0)
    reference = tl.where(largest == NEVER, 0.0, largest)
    # Scaled after the difference: a large logit times a large scale would overflow.
    scaled = (logits - reference[None, :, None]) * (inverse_temperature * LOG2_E)
    return largest, block_sum(tl.exp2(scaled))


@triton.jit
def block_sum(weights):
    """Sum of each block in one fixed order: [PARTS, blocks, SPAN] -> [blocks]."""
    for _ in tl.static_range(9):
        if weights.shape[2] > 1:
            weights = tl.sum(
                tl.reshape(weights, [weights.shape[0], weights.shape[1], weights.shape[2] // 2, 2]),
                3,
            )
    for _ in tl.static_range(9):
        if weights.shape[0] > 1:
            weights = tl.sum(
                tl.reshape(weights, [2, weights.shape[0] // 2, weights.shape[1], weights.shape[2]]),
                0,
            )
    return tl.sum(tl.sum(weights, 2), 0)


@triton.jit
def quarter_token_ids(block):
    """Token ids of the first quarter of each block: [blocks, SPAN].

    A span is what 16 lanes of 8 logits read at once. Quarters are combined elementwise, so that
    little is left to be summed between lanes, and nothing between warps.
    """
    return block[:, None] * BLOCK + tl.arange(0, SPAN)[None, :]


@triton.jit
def quarters_max(quarter_0, quarter_1, quarter_2, quarter_3):
    """Largest of each block: 4 times [blocks, SPAN] -> [blocks]."""
    largest = tl.maximum(tl.maximum(quarter_0, quarter_1), tl.maximum(quarter_2, quarter_3))
    return tl.max(largest, 1)


@triton.jit
def quarters_sum(quarter_0, quarter_1, quarter_2, quarter_3):
    """Sum of each block in one fixed order: 4 times [blocks, SPAN] -> [blocks]."""
    weights = (quarter_0 + quarter_1) + (quarter_2 + quarter_3)
    for _ in tl.static_range(7):
        weights = tl.sum(tl.reshape(weights, [weights.shape[0], weights.shape[1] // 2, 2]), 2)
    return tl.reshape(weights, [weights.shape[0]])


@triton.jit
def quarters_mass(quarter_0, quarter_1, quarter_2, quarter_3, largest, inverse_temperature):
    """Mass of each block relative to its largest logit; NaN if a logit is NaN or +inf."""
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    # Scaled after the difference: a large logit times a large scale would overflow.
    scale = inverse_temperature * LOG2_E
    return quarters_sum(
        tl.exp2((quarter_0 - reference) * scale),
        tl.exp2((quarter_1 - reference) * scale),
        tl.exp2((quarter_2 - reference) * scale),
        tl.exp2((quarter_3 - reference) * scale),
    )


@triton.jit
def normalise(largest, masses, inverse_temperature):
    """Of a row: its largest logit, and log of the sum of exp((logit - largest) / temperature).

    NaN, infinite and missing logits make the latter NaN or infinite.
    """
    row_max = tl.max(largest, 0)
    reference = tl.where(row_max == NEVER, 0.0, row_max)
    weights = masses * tl.exp((largest - reference) * inverse_temperature)
    # Rounded from double precision, the sum does not depend on its order.
    return row_max, tl.log(tl.sum(weights.to(tl.float64), 0).to(tl.float32))
