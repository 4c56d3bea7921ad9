"""The exponential race inside kernels; the same two levels as `acceptor.core.race`.

This module refuses to read logits: it is handed scores and block statistics.
"""

import triton
import triton.language as tl

from ...core.race import BLOCK_SIZE
from .random_bits import BLOCK_LEVEL, TOKEN_LEVEL, log_exponential, random_words

BLOCK = tl.constexpr(BLOCK_SIZE)
NEVER = tl.constexpr(float("-inf"))


@triton.jit
def lowest_argmax(scores, candidates):
    """Each row's best candidate, the lowest on a tie: [rows, N] -> [rows]."""
    best = tl.max(scores, 1)
    tied = tl.where(scores == best[:, None], candidates, 2147483647)
    return tl.min(tied, 1)


@triton.jit
def block_winner(largest, masses, inverse_temperature, greedy, seed, position, draft_index, stream):
    """The block that wins each row's first race: [rows] int32.

    Args:
        largest, masses: [rows, num_blocks], per block the largest logit and the sum of
            exp((logit - largest) / temperature).
        inverse_temperature, greedy, seed, stream: scalars; a greedy row takes the largest logit.
        position, draft_index: [rows].
    """
    NUM_BLOCKS: tl.constexpr = largest.shape[1]
    block = tl.arange(0, NUM_BLOCKS)[None, :]
    first = position * 0
    words = random_words(seed, position, draft_index, stream, BLOCK_LEVEL, first, NUM_BLOCKS)
    relative = largest - tl.max(largest, 1)[:, None]
    log_mass = relative * inverse_temperature + tl.log(masses)
    scores = tl.where(masses > 0.0, log_mass - log_exponential(words), NEVER)
    return lowest_argmax(tl.where(greedy, largest, scores), tl.broadcast_to(block, largest.shape))


@triton.jit
def token_noise(seed, position, draft_index, stream, winner):
    """Log exponentials of all tokens of a block per row: [rows, BLOCK]."""
    words = random_words(seed, position, draft_index, stream, TOKEN_LEVEL, winner * BLOCK, BLOCK)
    return log_exponential(words)
