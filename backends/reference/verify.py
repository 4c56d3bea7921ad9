"""Verification of one request, as the policy says.

This is the readable oracle: a fused backend must emit the same tokens.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.batch import VerifyBatch
from ...core.output import Status
from ...core.policies import DraftView, Policy, Rule, Strict
from ...core.randomness import Stream
from ...core.sampling_tensors import SamplingTensors
from .draw import acceptance_uniforms, draw
from .recipe import log_probs
from .request import RequestRows, cut_out, num_leading


@frozen(eq=False)
class Outcome:
    """What one request emits.

    Attributes:
        token_ids: [num_accepted + 1] int64, or [num_accepted] if the request stopped.
        num_accepted: accepted draft tokens.
        status: what went wrong.
        total_variation: [n] float64, what the policy says it caused at each decided row; None if
            it says nothing.
        rows: the rows that decided, for logprobs.
    """

    token_ids: Tensor
    num_accepted: int
    status: Status
    total_variation: Tensor | None
    rows: RequestRows


def verify_request(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, request: int
) -> Outcome:
    """Accept a part of one request's draft and draw the token that follows it."""
    if policy.greedy_is_strict and float(params.target.temperature[request]) == 0:
        policy = Strict()
    rows = cut_out(batch, params, policy, request)
    draws = _Draws(rows, params, int(batch.positions[request]))
    view = _view(rows, params, policy, draws)
    num_accepted = _num_accepted(view, policy, draws)
    token_ids = rows.draft_token_ids[:num_accepted]
    status = rows.status
    if num_accepted == view.num_draft_tokens and rows.stop is not Status.OK:
        status |= rows.stop
    else:
        token_ids = torch.cat((token_ids, _final_token(view, policy, draws, num_accepted)))
    caused = policy.total_variation(view)
    decided = None if caused is None else caused[: len(token_ids)]
    return Outcome(token_ids, num_accepted, status, decided, rows)


@frozen(eq=False)
class _Draws:
    """The random draws of one request, by row."""

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


def _view(rows: RequestRows, params: SamplingTensors, policy: Policy, draws: _Draws) -> DraftView:
    requests = torch.full((len(rows.logits),), rows.request, device=rows.logits.device)
    target = log_probs(rows.logits, params.target, requests)
    samples = draws.target_tokens(target, 0) if policy.uses_target_samples else None
    return DraftView(rows.draft_token_ids, target, rows.draft_log_probs, samples)


def _num_accepted(view: DraftView, policy: Policy, draws: _Draws) -> int:
    if view.num_draft_tokens == 0:
        return 0
    verdicts = _verdicts(policy.log_thresholds(view), draws)
    if policy.rule is Rule.FIRST_FAILURE:
        return num_leading(verdicts)
    successes = verdicts.nonzero()
    return int(successes[-1]) + 1 if len(successes) else 0


def _verdicts(log_thresholds: Tensor, draws: _Draws) -> Tensor:
    # Uniforms lie strictly inside (0, 1), so where no threshold does, none need be drawn.
    always = log_thresholds >= 0
    if bool((always | (log_thresholds == -torch.inf)).all()):
        return always
    return draws.uniforms(len(log_thresholds)).log() < log_thresholds


def _final_token(view: DraftView, policy: Policy, draws: _Draws, row: int) -> Tensor:
    residual = policy.log_residual(view, row) if row < view.num_draft_tokens else None
    if residual is not None:
        weights = _never_empty(residual, view, row)
        return draws.tokens(weights[None], row, Stream.RECOVER)
    if view.target_token_ids is not None:
        return view.target_token_ids[row : row + 1]
    return draws.target_tokens(view.target_log_probs[row : row + 1], row)


def _never_empty(residual: Tensor, view: DraftView, row: int) -> Tensor:
    # Rounding can leave no residual mass where p and q agree: then the target's law without the
    # rejected token is drawn from, and only if nothing else is left, with it.
    if residual.amax() > -torch.inf:
        return residual
    target = view.target_log_probs[row]
    without = target.index_fill(0, view.draft_token_ids[row], -torch.inf)
    return without if without.amax() > -torch.inf else target
