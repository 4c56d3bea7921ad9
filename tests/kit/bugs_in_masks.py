"""Bugs planted in masks of allowed tokens."""

from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.reference import accept, masks, outputs, request, verify
from acceptor.core import DraftView, Policy, VerifyBatch
from kit.bugs import Bug, bugs_of

LAW = "probabilistic, masks"
MASKS = ("allowed tokens",)


@Bug.instead_of(request, "allowed_in", "no mask on the bonus row", features=MASKS, check=LAW)
def _none_on_the_last_row(*given: Any, right: Any = masks.allowed_in) -> Tensor | None:
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
    allowed = masks.allowed_in(batch, first, len(drafts), batch.vocab_size)
    if allowed is not None:
        forbidden = (~allowed.gather(1, drafts[:, None])[:, 0]).nonzero()
        drafts = drafts[: int(forbidden[0])] if len(forbidden) else drafts
    return drafts, status


@Bug.instead_of(
    accept,
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
def _never_raw(_: Tensor, logits: Tensor, *rest: Any, right: Any = outputs._row_logprobs) -> Tensor:
    masked: Tensor = right(logits, logits, *rest)
    return masked


BUGS = bugs_of(vars())
