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
    num_rows, vocab_size = log_weights.shape
    block_size = min(vocab_size, BLOCK_SIZE)
    num_blocks = -(-vocab_size // block_size)
    behind = num_blocks * block_size - vocab_size
    if behind:
        log_weights = torch.nn.functional.pad(log_weights, (0, behind), value=-torch.inf)
    blocks = log_weights.view(num_rows, num_blocks, block_size)
    masses = blocks.logsumexp(dim=-1)
    block_ids = torch.arange(num_blocks, device=blocks.device).expand_as(masses)
    winner = _first_to_arrive(masses, words(Level.BLOCK, block_ids))
    inside = blocks[torch.arange(num_rows, device=blocks.device), winner]
    first_id = winner * BLOCK_SIZE
    token_ids = first_id[:, None] + torch.arange(block_size, device=blocks.device)
    return first_id + _first_to_arrive(inside, words(Level.TOKEN, token_ids))


def _first_to_arrive(log_weights: Tensor, words: Tensor) -> Tensor:
    # torch.argmax promises the first of several maxima, which is the lowest id.
    return (log_weights - exponential(words).log()).argmax(dim=-1)
