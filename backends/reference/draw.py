"""Draws and acceptance uniforms of single rows."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ...core.batch import SampleBatch
from ...core.race import BLOCK_SIZE, race
from ...core.randomness import Level, Stream, acceptance_uniform, random_words

NUM_PLACES_AHEAD = 4
MAX_VOCAB_AHEAD = 16 * BLOCK_SIZE


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


def draw_draft(log_weights: Tensor, batch: SampleBatch, seeds: Tensor) -> Tensor:
    """The same for a draft draw.

    Args:
        log_weights: [num_reqs, vocab_size] float64.
        batch: with a `draft_index`.
        seeds: [num_reqs] int64.
    """
    assert batch.draft_index is not None
    vocab_size = log_weights.shape[1]
    if len(log_weights) == 1 and BLOCK_SIZE < vocab_size <= MAX_VOCAB_AHEAD:
        return _draw_ahead(log_weights, batch, batch.draft_index, int(seeds))
    positions = batch.positions.long()
    draft_indices = torch.full_like(positions, batch.draft_index)
    return draw(log_weights, seeds, positions, draft_indices, batch.stream)


def _draw_ahead(log_weights: Tensor, batch: SampleBatch, draft_index: int, seed: int) -> Tensor:
    place = (draft_index - 1) % NUM_PLACES_AHEAD
    first = (int(batch.positions) - place, draft_index - place)
    blocks, tokens = _words_ahead(random_words, seed, *first, batch.stream, log_weights.shape[1])

    def words(level: Level, candidates: Tensor) -> Tensor:
        made = blocks if level is Level.BLOCK else tokens
        start = int(candidates[0, 0])
        of_place = made[place : place + 1, start : start + candidates.shape[1]]
        return of_place.to(candidates.device)

    return race(log_weights, words)


@lru_cache(maxsize=4)
def _words_ahead(
    source: Callable[..., Tensor],
    seed: int,
    position: int,
    draft_index: int,
    stream: Stream,
    vocab_size: int,
) -> tuple[Tensor, Tensor]:
    # The noise of a draft is known before its first token is drawn, and NumPy takes little longer
    # for the words of several places, of all blocks, than for one block's at one place.
    places = torch.arange(NUM_PLACES_AHEAD)
    draft_indices = torch.zeros_like(places) if stream is Stream.TARGET else draft_index + places
    keys = (torch.full_like(places, seed), position + places, draft_indices, stream)
    num_blocks = -(-vocab_size // BLOCK_SIZE)
    blocks = torch.arange(num_blocks).expand(NUM_PLACES_AHEAD, -1)
    tokens = torch.arange(num_blocks * BLOCK_SIZE).expand(NUM_PLACES_AHEAD, -1)
    return source(*keys, Level.BLOCK, blocks), source(*keys, Level.TOKEN, tokens)


def acceptance_uniforms(seeds: Tensor, positions: Tensor, draft_indices: Tensor) -> Tensor:
    """The uniform that each draft token is tested with: [num_rows] float64 in (0, 1)."""
    candidate = torch.zeros_like(seeds)[:, None]
    words = random_words(seeds, positions, draft_indices, Stream.ACCEPT, Level.BLOCK, candidate)
    return acceptance_uniform(words.squeeze(1))
