"""Where a row's threshold may lie, as a sample of its logits says: Floyd and Rivest's selection.

A bracket that is wrong costs another round of counting, never a token. (Floyd, Rivest: "Expected
time bounds for selection", Communications of the ACM, 1975.)
"""

import triton
import triton.language as tl

from ..logits import NEVER, row_logits
from ..units import HIGHEST_KEY, LOWEST_KEY, UNITS, as_key, from_key

CHUNK = tl.constexpr(16)
"""Neighbours in the sample: 32 bytes, the least that memory hands out."""

SIGMAS = tl.constexpr(3.5)
"""Standard deviations to both sides: one row in 2,000 is missed."""

SLACK = tl.constexpr(4.0)
"""Logits more on each side, for rows of which the sample holds few that matter."""

ROUNDING = tl.constexpr(1e-5)
"""More than the relative error of a sum of masses in float32."""

FEW = tl.constexpr(2048)
"""Logits above top-k's bracket that may as well be inside: then top-p cuts there, too."""


@triton.jit
def bracket(call, row, recipe, row_max, total, bound):
    """Two logits that the threshold surely lies between; an end of -inf or inf is none.

    Args:
        call, row, recipe: see `arguments` and `rows`.
        row_max: scalar, the largest logit.
        total: scalar int64, the mass of the row in units.
        bound: scalar, what top-k and min-p keep is not below it.
    """
    vocab_size = row.place * 0 + call.target.vocab_size
    if call.draft.logits is not None:
        vocab_size = tl.where(row.is_draft, call.draft.vocab_size, vocab_size)
    low = bound
    high = bound
    if (recipe.top_k > 0) | (bound == NEVER):
        logits = _sampled(call, row, vocab_size)
        number = tl.minimum(vocab_size, call.variant.sample).to(tl.float32)
        scale = vocab_size.to(tl.float32) / number
        doubt = (scale > 1.0).to(tl.float32)
        weights = (logits > NEVER).to(tl.float32)
        if recipe.top_k > 0:
            wanted = recipe.top_k.to(tl.float32) / scale
            error = SIGMAS * tl.sqrt(wanted * tl.maximum(1.0 - wanted / number, 0.0)) + SLACK
            rest = tl.sum(weights, 0) - wanted
            least = rest - doubt * error
            most = rest + doubt * error
            doubt = doubt * 0.0
        else:
            # What may be cut is many tokens of little mass: the sample is right about those.
            weights = tl.where(logits > NEVER, tl.exp((logits - row_max) * recipe.inverse), 0.0)
            whole = total.to(tl.float32) / (UNITS * scale)
            least = (1.0 - recipe.top_p - ROUNDING) * whole
            most = (1.0 - recipe.top_p + ROUNDING) * whole
        keys = as_key(logits, call.variant.key_shift)
        low, high = _cuts(call, keys, weights, (least, most), doubt, (row_max, recipe.inverse))
        low = tl.maximum(low, bound)
        high = tl.maximum(high, low)
        few = scale * tl.sum((logits >= low).to(tl.float32), 0) <= FEW
        if few & (recipe.top_k > 0):
            high = row_max
    return low, high


@triton.jit
def _sampled(call, row, vocab_size):
    """Logits of a row from all parts of the vocabulary: [sample]; all of them if they fit."""
    SAMPLE: tl.constexpr = call.variant.sample
    ids = _sampled_id(tl.arange(0, SAMPLE), vocab_size, SAMPLE)
    return row_logits(call, row, ids)


@triton.jit
def _sampled_id(place, vocab_size, SAMPLE: tl.constexpr):
    chunk = place // CHUNK
    room = tl.maximum(vocab_size // (SAMPLE // CHUNK) - CHUNK, 0) + 1
    # Scattered, so that no period in the vocabulary fools it.
    offset = ((chunk * 40503) & 0xFFFF) % room
    first = (chunk.to(tl.int64) * vocab_size // (SAMPLE // CHUNK)).to(tl.int32) + offset
    return tl.where(vocab_size <= SAMPLE, place, first // CHUNK * CHUNK + place % CHUNK)


@triton.jit
def _cuts(call, keys, weights, rests, doubt, law):
    """Two logits: below the first a sample surely weighs at most so much, below the other more.

    Args:
        call: see `arguments`.
        keys, weights: [sample].
        rests: two scalars, how much that is for either.
        doubt: 1 where what lies below a logit may be wrong by some standard deviations, else 0.
        law: scalars, the row's largest logit and 1 / temperature.

    Returns:
        Twice as far from the largest logit as the smallest of the sample if more lies below that,
        inf if no more does at all.
    """
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    row_max, inverse = law
    least, most = rests
    lowest = tl.min(tl.where(weights > 0.0, keys, HIGHEST_KEY), 0).to(tl.int64)
    highest = tl.max(tl.where(weights > 0.0, keys, LOWEST_KEY), 0).to(tl.int64) + 1
    low = lowest
    beyond_low = highest
    below_high = lowest
    high = highest
    while (beyond_low - low > 1) | (high - below_high > 1):
        middle = low + (beyond_low - low) // 2
        mass = tl.sum(tl.where(keys < middle.to(tl.int32), weights, 0.0), 0)
        own = tl.exp((from_key(middle, KEY_SHIFT) - row_max) * inverse)
        # None of those below weighs more than this logit, which bounds the variance of their sum.
        fits = mass + doubt * (SIGMAS * tl.sqrt(own * mass) + SLACK * own) <= least
        low = tl.where(fits, middle, low)
        beyond_low = tl.where(fits, beyond_low, tl.maximum(middle, low + 1))
        middle = below_high + (high - below_high) // 2
        mass = tl.sum(tl.where(keys < middle.to(tl.int32), weights, 0.0), 0)
        own = tl.exp((from_key(middle, KEY_SHIFT) - row_max) * inverse)
        fits = mass - doubt * (SIGMAS * tl.sqrt(own * mass) + SLACK * own) <= most
        below_high = tl.where(fits, middle, below_high)
        high = tl.where(fits, high, tl.maximum(middle, below_high + 1))
    smallest = from_key(lowest, KEY_SHIFT)
    at_low = tl.where(lowest < highest, smallest - (row_max - smallest), NEVER)
    at_low = tl.where(low > lowest, from_key(low, KEY_SHIFT), at_low)
    # What is below `high` weighs too much: the threshold is lower. Logits that tie equal the end.
    return at_low, tl.where(high < highest, from_key(high - 1, KEY_SHIFT), float("inf"))
