"""Verification of one request, stage by stage; a fused backend must emit the same tokens."""

import torch
from attrs import frozen
from torch import Tensor

from ...core import DraftView, Policy, SamplingTensors, Status, Strict, VerifyBatch
from .accept import num_accepted
from .draw import Draws, final_token
from .request import RequestRows, cut_out
from .thresholds import log_probs


@frozen(eq=False)
class Outcome:
    """What one request emits.

    Attributes:
        token_ids: [num_accepted + 1] int64, or [num_accepted] if the request stopped.
        num_accepted: accepted draft tokens.
        status: what went wrong.
        total_variation: [n] float64, the policy's `total_variation` at each decided row; None if
            it reports none.
        rows: the decided rows, for logprobs.
    """

    token_ids: Tensor
    num_accepted: int
    status: Status
    total_variation: Tensor | None
    rows: RequestRows


def verify_request(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, request: int
) -> Outcome:
    """Accept a prefix of one request's draft and draw the token that follows it."""
    if policy.greedy_is_strict and float(params.target.temperature[request]) == 0:
        policy = Strict()
    rows = cut_out(batch, params, policy, request)
    draws = Draws(rows, params, int(batch.positions[request]))
    view = _view(rows, params, policy, draws)
    accepted = num_accepted(view, policy, draws)
    token_ids = rows.draft_token_ids[:accepted]
    status = rows.status
    if accepted == view.num_draft_tokens and rows.stop is not Status.OK:
        status |= rows.stop
    else:
        token_ids = torch.cat((token_ids, final_token(view, policy, draws, accepted)))
    caused = policy.total_variation(view)
    decided = None if caused is None else caused[: len(token_ids)]
    return Outcome(token_ids, accepted, status, decided, rows)


def _view(rows: RequestRows, params: SamplingTensors, policy: Policy, draws: Draws) -> DraftView:
    requests = torch.full((len(rows.logits),), rows.request, device=rows.logits.device)
    target = log_probs(rows.logits, params.target, requests)
    samples = draws.target_tokens(target, 0) if policy.uses_target_samples else None
    return DraftView(rows.draft_token_ids, target, rows.draft_log_probs, samples, rows.allowed)
