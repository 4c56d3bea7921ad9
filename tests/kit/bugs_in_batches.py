"""Bugs planted in how batches and masks are read and outputs written, and the list of all bugs."""

from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.reference import outputs, request, statistics, verify
from acceptor.core import DraftView, Policy, SamplingTensors, VerifyBatch, VerifyOutput
from kit import bugs_in_draws, bugs_in_laws
from kit.bugs import Batch, Bug, Right, bugs_of


@Bug.misreads("noise keyed by place in the batch")
def _seeds_by_place(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, seeds=params.seeds + torch.arange(params.num_reqs))


@Bug.misreads("positions off by one")
def _next_position(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return evolve(batch, positions=batch.positions + 1), params


@Bug.misreads("draft rows off by one")
def _next_draft_row(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        return evolve(batch, draft_logits=batch.draft_logits.roll(1, dims=1)), params
    return batch, params


@Bug.misreads("slots ignored")
def _ignore_slots(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.slot_ids is not None:
        return evolve(batch, slot_ids=torch.arange(batch.num_reqs)), params
    return batch, params


@Bug.misreads("one temperature for all", features=("temperature",))
def _one_temperature(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    shared = params.target.temperature[:1].repeat(params.num_reqs)
    return batch, evolve(params, target=evolve(params.target, temperature=shared))


@Bug.misreads("draft logits scaled in place")
def _scale_in_place(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        batch.draft_logits[..., -1:] *= 2
    return batch, params


@Bug.misreads("seeds lose their sign bit")
def _signed_seeds(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, seeds=params.seeds & (2**63 - 1))


@Bug.spoils("padding not written")
def _leave_unwritten(_: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    token_ids = torch.empty_like(output.token_ids)
    written = output.token_ids >= 0
    token_ids[written] = output.token_ids[written]
    return evolve(output, token_ids=token_ids)


@Bug.spoils("one NaN stops everybody", features=("bad target rows",))
def _all_stop(batch: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    if batch.target_logits.isnan().any():
        return evolve(output, status=output.status | 1)
    return output


@Bug.misreads("processed logprobs are raw", features=("logprobs", "temperature"))
def _raw_only(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, logprobs_processed=torch.zeros_like(params.logprobs_processed))


@Bug.spoils("no variation reported", policy="typical")
def _no_variation(_: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    caused = output.total_variation
    return evolve(output, total_variation=None if caused is None else torch.zeros_like(caused))


LAW = "probabilistic, masks"
MASKS = ("allowed tokens",)


@Bug.instead_of(request, "allowed_in", "no mask on the bonus row", features=MASKS, check=LAW)
def _none_on_the_last_row(*given: Any, right: Any = statistics.allowed_in) -> Tensor | None:
    allowed: Tensor | None = right(*given)
    if allowed is not None:
        allowed[-1:] = True
    return allowed


def _unmasked(logits: Tensor, _: Tensor | None) -> Tensor:
    return logits


def _masked_last(*given: Any, right: Any = verify._view) -> DraftView:
    view: DraftView = right(*given)
    if view.allowed is None:
        return view
    masked = view.target_log_probs.masked_fill(~view.allowed, -torch.inf)
    return evolve(view, target_log_probs=masked.log_softmax(dim=-1))


AFTER_FILTERS = Bug(
    "masks after the filters",
    ((request, "forbid", _unmasked), (verify, "_view", _masked_last)),
    features=(*MASKS, "top-k"),
)


@Bug.instead_of(
    request,
    "_usable_ids",
    "drafts cut where a mask forbids them",
    policy="probabilistic",
    features=MASKS,
    check=LAW,
)
def _cut_where_forbidden(
    batch: VerifyBatch, index: int, num_drafts: int, right: Any = request._usable_ids
) -> Any:
    drafts, status = right(batch, index, num_drafts)
    first = int(batch.cu_num_logits[index])
    allowed = statistics.allowed_in(batch, first, len(drafts), batch.vocab_size)
    if allowed is not None:
        forbidden = (~allowed.gather(1, drafts[:, None])[:, 0]).nonzero()
        drafts = drafts[: int(forbidden[0])] if len(forbidden) else drafts
    return drafts, status


@Bug.instead_of(
    verify,
    "_log_thresholds",
    "set rates let forbidden drafts survive",
    policy="synthetic",
    features=MASKS,
)
def _as_if_allowed(view: DraftView, policy: Policy) -> Tensor:
    return policy.log_thresholds(view)


@Bug.instead_of(
    outputs, "_row_logprobs", "raw logprobs of masked logits", features=(*MASKS, "logprobs")
)
def _never_raw(
    _: Tensor, logits: Tensor, *rest: Any, right: Right = outputs._row_logprobs
) -> Tensor:
    return right(logits, logits, *rest)


ALL_BUGS = (*bugs_in_draws.BUGS, *bugs_in_laws.BUGS, *bugs_of(vars()))
OF_LAWS = tuple(bug for bug in ALL_BUGS if bug.check is not None)
"""The planted bugs that change a law."""
