"""The exponential race inside kernels; the same two levels as `acceptor.core.race`.

This module refuses to read logits: it is handed scores and block statistics.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .random_bits import BLOCK_LEVEL, TOKEN_LEVEL, exponential, random_words
from .recipe import LOG2_E

BLOCK = tl.constexpr(BLOCK_SIZE)
NEVER = tl.constexpr(float("-inf"))


@triton.jit
def lowest_argmax(scores, candidates):
    """Each row's best candidate, the lowest on a tie: [rows, N] -> [rows]."""
    best = tl.max(scores, 1)
    tied = tl.where(scores == best[:, None], candidates, 2147483647)
    return tl.min(tied, 1)


@triton.jit
def block_winner(largest, masses, inverse_temperature, greedy, arrivals):
    """The block that wins each row's first race: [rows] int32.

    Args:
        largest, masses: [rows, num_blocks], per block the largest logit and the sum of
            exp((logit - largest) / temperature).
        inverse_temperature, greedy: scalars; a greedy row takes the largest logit.
        arrivals: [rows, num_blocks], see `block_arrivals`.
    """
    block = tl.arange(0, largest.shape[1])[None, :]
    relative = largest - tl.max(largest, 1)[:, None]
    weights = masses * tl.exp2(relative * (inverse_temperature * LOG2_E))
    scores = tl.where(masses > 0.0, weights / arrivals, NEVER)
    return lowest_argmax(tl.where(greedy, largest, scores), tl.broadcast_to(block, largest.shape))


@triton.jit
def block_arrivals(seed, position, draft_index, stream, NUM_BLOCKS: tl.constexpr, first=None):
    """Exponentials of blocks per row: [rows, NUM_BLOCKS], from the first, divisible by 4, if any.

    The largest ratio of weight to exponential wins: the logarithm of this is the score of
    `acceptor.core.race`.
    """
    if first is None:
        first = position * 0
    words = random_words(seed, position, draft_index, stream, BLOCK_LEVEL, first, NUM_BLOCKS)
    return exponential(words)


@triton.jit
def token_arrivals(seed, position, draft_index, stream, winner):
    """Exponentials of all tokens of a block per row: [rows, BLOCK]."""
    words = random_words(seed, position, draft_index, stream, TOKEN_LEVEL, winner * BLOCK, BLOCK)
    return exponential(words)


@triton.jit
def token_winner(logits, kept, token_ids, inverse_temperature, greedy, arrivals):
    """The token that wins each row's second race: [rows] int32.

    Args:
        logits: [rows, BLOCK], of the blocks that won.
        kept: [rows, BLOCK], False where a filter or the draft took a token away.
        token_ids: [rows, BLOCK].
        inverse_temperature, greedy: as in `block_winner`.
        arrivals: [rows, BLOCK], see `token_arrivals`.
    """
    logits = tl.where(kept, logits, NEVER)
    relative = logits - tl.max(logits, 1)[:, None]
    weights = tl.exp2(relative * (inverse_temperature * LOG2_E))
    scores = tl.where(logits > NEVER, weights / arrivals, NEVER)
    return lowest_argmax(tl.where(greedy, logits, scores), token_ids)
