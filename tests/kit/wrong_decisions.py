"""Backends with one planted bug each, in a policy or in how a batch is read.

Each is a bug that some engine has had, or nearly had. This module refuses to be subtle.
"""

from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.reference import verify
from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Rule,
    SamplingTensors,
    Synthetic,
    Typical,
    VerifyBatch,
    VerifyOutput,
)
from acceptor.core.policies import DraftView
from acceptor.core.policies.lossy import entropy
from kit.wrong_backends import Batch, WrongSampler


def _residual_of_p(_: Policy, view: DraftView, row: int) -> Tensor:
    return view.target_log_probs[row]


def _unscaled_residual(_: Policy, view: DraftView, row: int) -> Tensor:
    return Probabilistic().log_residual(view, row)


def _bonus_without_recipe(
    view: DraftView, policy: Policy, draws: Any, row: int, right: Any = verify._final_token
) -> Tensor:
    if row < view.num_draft_tokens:
        final: Tensor = right(view, policy, draws, row)
        return final
    raw = draws.rows.raw_logits[row : row + 1].to(torch.float64)
    tokens: Tensor = draws.target_tokens(raw.log_softmax(dim=-1), row)
    return tokens


def _unconditional(policy: Synthetic) -> tuple[float, ...]:
    return policy.rates


def _shorter_window(policy: Fly, view: DraftView, right: Any = Fly._forgiven) -> Tensor:
    shorter: Tensor = right(evolve(policy, window=max(policy.window - 1, 0)), view)
    return shorter


def _larger_threshold(policy: Typical, view: DraftView) -> Tensor:
    log_p = view.target_log_probs[: view.num_draft_tokens]
    threshold = (policy.delta * (-entropy(log_p)).exp()).clamp(min=policy.epsilon)
    return log_p.exp() > threshold[:, None]


def _only_n(policy: RelaxedTopN, view: DraftView) -> Tensor:
    p = view.target_log_probs[: view.num_draft_tokens].exp()
    largest = p.topk(min(policy.top_n, p.shape[1]), dim=-1)
    inside = torch.zeros_like(p, dtype=torch.bool).scatter_(1, largest.indices, 1)
    return inside & (p >= largest.values[:, :1] - policy.delta) & (p > 0)


WRONG_POLICIES = (
    WrongSampler(
        "residual = p", ((Probabilistic, "log_residual", _residual_of_p),), policy="probabilistic"
    ),
    WrongSampler(
        "block's residual unscaled", ((Block, "log_residual", _unscaled_residual),), policy="block"
    ),
    WrongSampler(
        "block stops at the first failure", ((Block, "rule", Rule.FIRST_FAILURE),), policy="block"
    ),
    WrongSampler("bonus without filters", ((verify, "_final_token", _bonus_without_recipe),)),
    WrongSampler(
        "synthetic rates taken as conditional",
        ((Synthetic, "conditional_rates", property(_unconditional)),),
        policy="synthetic",
    ),
    WrongSampler("fly's window too short", ((Fly, "_forgiven", _shorter_window),), policy="fly"),
    WrongSampler(
        "typical takes the larger bound",
        ((Typical, "_accepted", _larger_threshold),),
        policy="typical",
    ),
    WrongSampler("relaxed breaks ties", ((RelaxedTopN, "_accepted", _only_n),), policy="relaxed"),
)


def _seeds_by_place(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, seeds=params.seeds + torch.arange(params.num_reqs))


def _next_position(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return evolve(batch, positions=batch.positions + 1), params


def _next_draft_row(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        return evolve(batch, draft_logits=batch.draft_logits.roll(1, dims=1)), params
    return batch, params


def _ignore_slots(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.slot_ids is not None:
        return evolve(batch, slot_ids=torch.arange(batch.num_reqs)), params
    return batch, params


def _one_temperature(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    shared = params.target.temperature[:1].repeat(params.num_reqs)
    return batch, evolve(params, target=evolve(params.target, temperature=shared))


def _scale_in_place(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        batch.draft_logits[..., -1:] *= 2
    return batch, params


def _signed_seeds(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, seeds=params.seeds & (2**63 - 1))


def _leave_unwritten(_: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    token_ids = torch.empty_like(output.token_ids)
    written = output.token_ids >= 0
    token_ids[written] = output.token_ids[written]
    return evolve(output, token_ids=token_ids)


def _all_stop(batch: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    if batch.target_logits.isnan().any():
        return evolve(output, status=output.status | 1)
    return output


def _raw_only(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, logprobs_processed=torch.zeros_like(params.logprobs_processed))


def _no_variation(_: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    caused = output.total_variation
    return evolve(output, total_variation=None if caused is None else torch.zeros_like(caused))


WRONG_BATCHES = (
    WrongSampler("noise keyed by place in the batch", misread=_seeds_by_place),
    WrongSampler("seeds lose their sign bit", misread=_signed_seeds),
    WrongSampler("positions off by one", misread=_next_position),
    WrongSampler("draft rows off by one", misread=_next_draft_row),
    WrongSampler("slots ignored", misread=_ignore_slots),
    WrongSampler("one temperature for all", misread=_one_temperature, features=("temperature",)),
    WrongSampler("draft logits scaled in place", misread=_scale_in_place),
    WrongSampler("padding not written", spoil=_leave_unwritten),
    WrongSampler("one NaN stops everybody", spoil=_all_stop),
    WrongSampler(
        "processed logprobs are raw", misread=_raw_only, features=("logprobs", "temperature")
    ),
    WrongSampler("no variation reported", spoil=_no_variation, policy="typical"),
)
