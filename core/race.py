"""The one draw rule: an exponential race in two levels, first among blocks, then inside one.

With weights w(v) and block masses W_b, block b wins by the largest log W_b - log E(b), then token v
by the largest log w(v) - log E(v), where E are standard exponentials. The law is exactly w /
sum(w). A row needs V / 512 + 512 random numbers instead of V, and no normaliser.
"""

from collections.abc import Callable, Sequence
from functools import reduce

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
    return race_of_shards((log_weights,), words)


def race_of_shards(shards: Sequence[Tensor], words: WordSource) -> Tensor:
    """Draw like `race` for rows whose ids are cut into shards, as several devices hold them.

    Each shard computes its block masses; the block is chosen from all of them together. A block may
    span several shards.

    Args:
        shards: [num_rows, any] float64 each, in the order of the ids.
        words: as in `race`.

    Returns:
        [num_rows] int64 token ids.
    """
    parts, first_id, vocab_size = [], 0, sum(shard.shape[1] for shard in shards)
    block_size = min(vocab_size, BLOCK_SIZE)
    for shard in shards:
        # Each shard is padded to whole blocks; ids outside it have no weight.
        behind = vocab_size - first_id - shard.shape[1] + -vocab_size % block_size
        parts.append(_padded(shard, first_id, behind).unflatten(1, (-1, block_size)))
        first_id += shard.shape[1]
    masses = reduce(torch.logaddexp, (part.logsumexp(dim=-1) for part in parts))
    rows = torch.arange(len(masses), device=masses.device)
    block_ids = torch.arange(masses.shape[1], device=masses.device).expand_as(masses)
    winner = _first_to_arrive(masses, words(Level.BLOCK, block_ids))
    inside = reduce(torch.maximum, (part[rows, winner] for part in parts))
    first = winner * BLOCK_SIZE
    token_ids = first[:, None] + torch.arange(block_size, device=inside.device)
    return first + _first_to_arrive(inside, words(Level.TOKEN, token_ids))


def _first_to_arrive(log_weights: Tensor, words: Tensor) -> Tensor:
    # torch.argmax promises the first of several maxima, which is the lowest id.
    return (log_weights - exponential(words).log()).argmax(dim=-1)


def _padded(log_weights: Tensor, before: int, behind: int) -> Tensor:
    if before == behind == 0:
        return log_weights
    return torch.nn.functional.pad(log_weights, (before, behind), value=-torch.inf)
