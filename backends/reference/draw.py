"""Draws and acceptance uniforms of single rows; refuses draws outside the streams."""

import torch
from torch import Tensor

from ...core.race import race
from ...core.randomness import Level, Stream, acceptance_uniform, random_words


def draw(
    log_weights: Tensor, seeds: Tensor, positions: Tensor, draft_indices: Tensor, stream: Stream
) -> Tensor:
    """One token per row by the exponential race.

    Args:
        log_weights: [num_rows, vocab_size] float64.
        seeds: [num_rows] int64.
        positions: [num_rows] int64.
        draft_indices: [num_rows] int64; ignored by the TARGET stream, which is keyed by position.
        stream: what the draw is for.

    Returns:
        [num_rows] int64 token ids.
    """
    if stream is Stream.TARGET:
        draft_indices = torch.zeros_like(draft_indices)

    def words(level: Level, candidates: Tensor) -> Tensor:
        return random_words(seeds, positions, draft_indices, stream, level, candidates)

    return race(log_weights, words)


def acceptance_uniforms(seeds: Tensor, positions: Tensor, draft_indices: Tensor) -> Tensor:
    """The uniform that each draft token is tested with: [num_rows] float64 in (0, 1)."""
    candidate = torch.zeros_like(seeds)[:, None]
    words = random_words(seeds, positions, draft_indices, Stream.ACCEPT, Level.BLOCK, candidate)
    return acceptance_uniform(words.squeeze(1))
