"""Draws and acceptance uniforms of single rows."""

import torch
from attrs import frozen
from torch import Tensor

from ...core import DraftView, Level, Policy, SamplingTensors, Stream
from ...core.race import race
from ...core.randomness import acceptance_uniform, random_words
from .request import RequestRows


def draw(
    log_weights: Tensor, seeds: Tensor, positions: Tensor, draft_indices: Tensor, stream: Stream
) -> Tensor:
    """One token per row by the exponential race.

    Args:
        log_weights: [num_rows, vocab_size] float64.
        seeds: [num_rows] int64.
        positions: [num_rows] int64.
        draft_indices: [num_rows] int64; ignored by the TARGET stream, which is keyed by position.
        stream: the purpose of the draw.

    Returns:
        [num_rows] int64 token ids.
    """
    if stream is Stream.TARGET:
        draft_indices = torch.zeros_like(draft_indices)

    def words(level: Level, candidates: Tensor) -> Tensor:
        return random_words(seeds, positions, draft_indices, stream, level, candidates)

    return race(log_weights, words)


def acceptance_uniforms(seeds: Tensor, positions: Tensor, draft_indices: Tensor) -> Tensor:
    """The uniforms that draft tokens are tested against: [num_rows] float64 in (0, 1)."""
    candidate = torch.zeros_like(seeds)[:, None]
    words = random_words(seeds, positions, draft_indices, Stream.ACCEPT, Level.BLOCK, candidate)
    return acceptance_uniform(words.squeeze(1))


@frozen(eq=False)
class Draws:
    """The random draws of one request, by row.

    Attributes:
        rows: the request's rows.
        params: the batch's parameters.
        first_position: the sequence position that the first row decides.
    """

    rows: RequestRows
    params: SamplingTensors
    first_position: int

    def tokens(self, log_weights: Tensor, first_row: int, stream: Stream) -> Tensor:
        """Draw for consecutive rows: [num_rows, vocab_size] -> [num_rows]."""
        return draw(log_weights, *self._keys(first_row, len(log_weights)), stream)

    def target_tokens(self, log_probs: Tensor, first_row: int) -> Tensor:
        """The target's own samples at consecutive rows."""
        if self.params.target.all_greedy:
            return log_probs.argmax(dim=-1)
        return self.tokens(log_probs, first_row, Stream.TARGET)

    def uniforms(self, num_drafts: int) -> Tensor:
        """The acceptance uniforms of the draft."""
        return acceptance_uniforms(*self._keys(0, num_drafts))

    def _keys(self, first_row: int, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        seeds = self.params.seeds[self.rows.request].expand(num_rows)
        rows = torch.arange(first_row, first_row + num_rows, device=seeds.device)
        return seeds, self.first_position + rows, rows + 1


def final_token(view: DraftView, policy: Policy, draws: Draws, row: int) -> Tensor:
    """The token after `row` accepted ones, [1] int64: recovered, the target's own, or bonus."""
    residual = policy.log_residual(view, row) if row < view.num_draft_tokens else None
    if residual is not None:
        weights = _never_empty(residual, view, row)
        return draws.tokens(weights[None], row, Stream.RECOVER)
    if view.target_token_ids is not None:
        return view.target_token_ids[row : row + 1]
    return draws.target_tokens(view.target_log_probs[row : row + 1], row)


def _never_empty(residual: Tensor, view: DraftView, row: int) -> Tensor:
    # Where p and q agree, rounding can leave no residual mass. Then draw from the target's law
    # without the rejected token, or with it if nothing else is left.
    if residual.amax() > -torch.inf:
        return residual
    target = view.target_log_probs[row]
    without = target.index_fill(0, view.draft_token_ids[row], -torch.inf)
    return without if without.amax() > -torch.inf else target
