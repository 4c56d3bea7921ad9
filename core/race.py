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
    vocab_size = log_weights.shape[1]
    block_size = min(vocab_size, BLOCK_SIZE)
    padding = (0, -vocab_size % block_size)
    padded = torch.nn.functional.pad(log_weights, padding, value=-torch.inf)
    blocks = padded.unflatten(1, (-1, block_size))
    masses = blocks.logsumexp(dim=-1)
    rows, block_ids = (torch.arange(size, device=masses.device) for size in masses.shape)
    winner = first_to_arrive(masses, words(Level.BLOCK, block_ids.expand_as(masses)))
    first = winner * BLOCK_SIZE
    token_ids = first[:, None] + torch.arange(block_size, device=masses.device)
    return first + first_to_arrive(blocks[rows, winner], words(Level.TOKEN, token_ids))


def first_to_arrive(log_weights: Tensor, words: Tensor) -> Tensor:
    """The winner of each row's race, the lowest id on a tie: [num_rows]."""
    # torch.argmax promises the first of several maxima.
    return (log_weights - exponential(words).log()).argmax(dim=-1)
