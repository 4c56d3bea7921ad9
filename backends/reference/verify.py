"""Verification of one request, stage by stage; a fused backend must emit the same tokens."""

import torch
from torch import Tensor

from ...core import (
    DraftView,
    Policy,
    Rule,
    SamplingTensors,
    Status,
    Strict,
    VerifyBatch,
    VerifyOutput,
)
from .draw import Draws, final_token
from .outputs import write_logprobs
from .request import RequestRows, cut_out
from .statistics import num_leading
from .thresholds import log_probs


def verify_request(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, request: int, out: VerifyOutput
) -> None:
    """Accept a prefix of one request's draft, draw the token that follows it, and write both.

    `out` already says that nothing is emitted.
    """
    if policy.greedy_is_strict and float(params.target.temperature[request]) == 0:
        policy = Strict()
    rows = cut_out(batch, params, policy, request)
    draws = Draws(rows, params, int(batch.positions[request]))
    view = _view(rows, params, policy, draws)
    accepted = _num_accepted(view, policy, draws)
    token_ids = rows.draft_token_ids[:accepted]
    status = rows.status
    if accepted == view.num_draft_tokens and rows.stop is not Status.OK:
        status |= rows.stop
    else:
        token_ids = torch.cat((token_ids, final_token(view, policy, draws, accepted)))
    num_tokens = len(token_ids)
    out.token_ids[request, :num_tokens] = token_ids
    out.num_accepted[request] = accepted
    out.status[request] = int(status)
    caused = None if out.total_variation is None else policy.total_variation(view)
    if out.total_variation is not None and caused is not None:
        out.total_variation[request, : len(caused[:num_tokens])] = caused[:num_tokens]
    if out.logprobs is not None:
        places = torch.arange(num_tokens, device=token_ids.device)
        where = torch.full_like(places, request), places
        raw_logits, logits = rows.raw_logits[:num_tokens], rows.logits[:num_tokens]
        write_logprobs(out.logprobs, where, params, raw_logits, logits, token_ids)


def _view(rows: RequestRows, params: SamplingTensors, policy: Policy, draws: Draws) -> DraftView:
    requests = torch.full((len(rows.logits),), rows.request, device=rows.logits.device)
    target = log_probs(rows.logits, params.target, requests)
    samples = draws.target_tokens(target, 0) if policy.uses_target_samples else None
    return DraftView(
        draft_token_ids=rows.draft_token_ids,
        target_log_probs=target,
        draft_log_probs=rows.draft_log_probs,
        target_token_ids=samples,
        allowed=rows.allowed,
        target_logits=rows.logits,
    )


def _num_accepted(view: DraftView, policy: Policy, draws: Draws) -> int:
    """Count the accepted tokens by the policy's rule."""
    if view.num_draft_tokens == 0:
        return 0
    verdicts = _verdicts(_log_thresholds(view, policy), draws)
    if policy.rule is Rule.FIRST_FAILURE:
        return num_leading(verdicts)
    successes = verdicts.nonzero()
    return int(successes[-1]) + 1 if len(successes) else 0


def _log_thresholds(view: DraftView, policy: Policy) -> Tensor:
    thresholds = policy.log_thresholds(view)
    if view.allowed is None:
        return thresholds
    return torch.where(view.of_drafts(view.allowed), thresholds, -torch.inf)


def _verdicts(log_thresholds: Tensor, draws: Draws) -> Tensor:
    # Uniforms lie strictly inside (0, 1): if no threshold does, none has to be drawn.
    always = log_thresholds >= 0
    if bool((always | (log_thresholds == -torch.inf)).all()):
        return always
    return draws.uniforms(len(log_thresholds)).log() < log_thresholds
