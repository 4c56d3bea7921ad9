"""The one draw rule: an exponential race in two levels, first among blocks, then inside one.

With weights w(v) and block masses W_b, block b wins by the largest log W_b - log E(b), then token v
by the largest log w(v) - log E(v), where E are standard exponentials. The law is exactly w /
sum(w). A row needs V / 512 + 512 random numbers instead of V, and no normaliser.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .randomness import Level, exponential

BLOCK_SIZE = 512
"""Token ids per block; the last block of a vocabulary may be short."""

WordSource = Callable[[Level, Tensor], Tensor]
"""(level, candidates [num_rows, n]) -> random words [num_rows, n]."""


def race(log_weights: Tensor, words: WordSource) -> Tensor:
    """Draw one token per row with probability proportional to its weight.

    Args:
        log_weights: [num_rows, vocab_size] float64, -inf where the weight is 0; every row has at
            least one finite entry.
        words: the random words of these rows.

    Returns:
        [num_rows] int64 token ids; on a tied score the lowest id.
    """
    blocks = _split_into_blocks(log_weights)
    masses = blocks.logsumexp(dim=-1)
    block_ids = torch.arange(masses.shape[1], device=masses.device).expand_as(masses)
    winner = _first_to_arrive(masses, words(Level.BLOCK, block_ids))
    inside = blocks[torch.arange(len(blocks), device=winner.device), winner]
    first_id = winner * BLOCK_SIZE
    token_ids = first_id[:, None] + torch.arange(inside.shape[1], device=inside.device)
    return first_id + _first_to_arrive(inside, words(Level.TOKEN, token_ids))


def _first_to_arrive(log_weights: Tensor, words: Tensor) -> Tensor:
    # torch.argmax promises the first of several maxima, which is the lowest id.
    return (log_weights - exponential(words).log()).argmax(dim=-1)


def _split_into_blocks(log_weights: Tensor) -> Tensor:
    vocab_size = log_weights.shape[1]
    block_size = min(vocab_size, BLOCK_SIZE)
    padding = (0, -vocab_size % block_size)
    padded = torch.nn.functional.pad(log_weights, padding, value=-torch.inf)
    blocks: Tensor = padded.unflatten(1, (-1, block_size))
    return blocks
