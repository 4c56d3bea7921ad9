"""The one draw rule: an exponential race in two levels, first among blocks, then inside one.

With weights w(v) and block masses W_b, block b wins by the largest log W_b - log E(b), then token v
by the largest log w(v) - log E(v), where E are standard exponentials. The law is exactly w /
sum(w). A row needs V / 512 + 512 random numbers instead of V, and no normaliser.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate

import torch
from attrs import frozen
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
    """The same for rows whose ids are cut into shards, as several devices hold them.

    Block statistics are made in each shard, exchanged, and decided on together; a block may lie in
    several shards. What is exchanged is a mass per block and the weights of one block.

    Args:
        shards: [num_rows, any] float64 each, in the order of the ids.
        words: the random words of these rows.

    Returns:
        [num_rows] int64 token ids.
    """
    vocab_size = sum(shard.shape[1] for shard in shards)
    parts = _parts_of(shards, min(vocab_size, BLOCK_SIZE))
    masses = _combined_masses(parts, -(-vocab_size // BLOCK_SIZE))
    block_ids = torch.arange(masses.shape[1], device=masses.device).expand_as(masses)
    winner = _first_to_arrive(masses, words(Level.BLOCK, block_ids))
    first_id = winner * BLOCK_SIZE
    inside = reduce(torch.maximum, (part.weights_in(winner) for part in parts))
    token_ids = first_id[:, None] + torch.arange(inside.shape[1], device=inside.device)
    return first_id + _first_to_arrive(inside, words(Level.TOKEN, token_ids))


@frozen(eq=False)
class _Part:
    """A shard's weights by blocks, -inf where a block's tokens are another's.

    Attributes:
        first_block: the first block that it has tokens of.
        blocks: [num_rows, num_blocks, block_size].
    """

    first_block: int
    blocks: Tensor

    def weights_in(self, winner: Tensor) -> Tensor:
        """Of one block per row: [num_rows, block_size]."""
        num_rows, num_blocks, _ = self.blocks.shape
        place = winner - self.first_block
        held = (place >= 0) & (place < num_blocks)
        rows = torch.arange(num_rows, device=winner.device)
        weights = self.blocks[rows, place.clamp(0, num_blocks - 1)]
        return weights.masked_fill(~held[:, None], -torch.inf)


def _parts_of(shards: Sequence[Tensor], block_size: int) -> list[_Part]:
    first_ids = accumulate((shard.shape[1] for shard in shards), initial=0)
    return [
        _Part(first_id // BLOCK_SIZE, _split_into_blocks(shard, first_id % BLOCK_SIZE, block_size))
        for shard, first_id in zip(shards, first_ids, strict=False)
    ]


def _split_into_blocks(log_weights: Tensor, before: int, block_size: int) -> Tensor:
    num_rows, num_tokens = log_weights.shape
    num_blocks = -(-(before + num_tokens) // block_size)
    padding = (before, num_blocks * block_size - before - num_tokens)
    if any(padding):
        log_weights = torch.nn.functional.pad(log_weights, padding, value=-torch.inf)
    return log_weights.view(num_rows, num_blocks, block_size)


def _combined_masses(parts: Sequence[_Part], num_blocks: int) -> Tensor:
    # [num_rows, num_blocks], logarithms.
    masses = parts[0].blocks.new_full((len(parts[0].blocks), num_blocks), -torch.inf)
    for part in parts:
        here = masses[:, part.first_block : part.first_block + part.blocks.shape[1]]
        here.copy_(torch.logaddexp(here, part.blocks.logsumexp(dim=-1)))
    return masses


def _first_to_arrive(log_weights: Tensor, words: Tensor) -> Tensor:
    # torch.argmax promises the first of several maxima, which is the lowest id.
    return (log_weights - exponential(words).log()).argmax(dim=-1)
