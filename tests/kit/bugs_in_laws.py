"""Bugs planted in what logits become, and in what policies compare, accept and leave."""

from functools import partial
from operator import attrgetter
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.reference import draw, request, statistics, thresholds, verify
from acceptor.core import (
    Block,
    DraftView,
    Fly,
    Probabilistic,
    RelaxedTopN,
    Rule,
    SampleBatch,
    SamplingTensors,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
)
from acceptor.core.policies.policy import entropy
from kit.bugs import Bug, Decorator, Right, bugs_of

PLAIN, RECIPE = "probabilistic, draft model", "probabilistic, other recipe"


def _residual(name: str, policy: type = Probabilistic) -> Decorator:
    known = "block" if policy is Block else "probabilistic"
    return Bug.instead_of(policy, "log_residual", name, policy=known, check=f"{known}, draft model")


@_residual("residual = p")
def _residual_of_p(_: object, view: DraftView, row: int) -> Tensor:
    return view.target_log_probs[row].clone()


@_residual("residual = p where p > q, without the − q")
def _residual_without_subtraction(_: object, view: DraftView, row: int) -> Tensor:
    assert view.draft_log_probs is not None
    log_p, log_q = view.target_log_probs[row], view.draft_log_probs[row]
    return torch.where(log_p > log_q, log_p, -torch.inf)


@_residual("residual as if the draft were one-hot")
def _residual_as_if_one_hot(_: object, view: DraftView, row: int) -> Tensor:
    return view.target_log_probs[row].index_fill(0, view.draft_token_ids[row], -torch.inf)


@_residual("block's residual without the running product", Block)
def _unscaled_residual(_: object, view: DraftView, row: int) -> Tensor:
    return Probabilistic().log_residual(view, row)


def _accepts_equal_samples_too(
    policy: Any, view: DraftView, right: Any = Probabilistic.log_thresholds
) -> Tensor:
    return torch.maximum(right(policy, view), Strict().log_thresholds(view))


EQUAL_SAMPLES_TOO = Bug(
    "accepts if u < p/q or equal to the target's sample",
    (
        (Probabilistic, "log_thresholds", _accepts_equal_samples_too),
        (Probabilistic, "uses_target_samples", True),
    ),
    policy="probabilistic",
    check=PLAIN,
)


@Bug.instead_of(
    request,
    "log_probs",
    "raw q, processed drafts",
    policy="probabilistic",
    features=("draft recipe", "temperature"),
    check=RECIPE,
)
def _raw_log_probs(logits: Tensor, *_: object) -> Tensor:
    return logits.double().log_softmax(dim=-1)


@Bug.instead_of(
    request, "in_target_ids", "q left in draft ids", shown_by="proof", check="probabilistic, mapped"
)
def _unmapped(law: Tensor, size: int, _: object, right: Right = request.in_target_ids) -> Tensor:
    return right(law, size, None)


@Bug.instead_of(
    verify, "_view", "target cut to the draft's vocabulary", check="probabilistic, narrower"
)
def _cut_to_the_draft(*given: Any, right: Any = verify._view) -> DraftView:
    view: DraftView = right(*given)
    if view.draft_log_probs is None or view.num_draft_tokens == 0:
        return view
    known = view.draft_log_probs[0] > -torch.inf
    cut = view.target_log_probs.masked_fill(~known, -torch.inf).log_softmax(dim=-1)
    return evolve(view, target_log_probs=cut)


@Bug.instead_of(verify, "_view", "target rows off by one", check=PLAIN)
def _next_rows(*given: Any, right: Any = verify._view) -> DraftView:
    view: DraftView = right(*given)
    return evolve(view, target_log_probs=view.target_log_probs.roll(-1, dims=0))


@Bug.instead_of(verify, "final_token", "bonus token without filters", check=RECIPE)
def _bonus_without_filters(
    view: DraftView, policy: Any, draws: draw.Draws, row: int, right: Right = draw.final_token
) -> Tensor:
    if row < view.num_draft_tokens:
        return right(view, policy, draws, row)
    raw = draws.rows.logits[row : row + 1].to(torch.float64)
    return draws.target_tokens(raw.log_softmax(dim=-1), row)


@Bug.instead_of(
    statistics,
    "_drafted_before",
    "penalties forget the draft",
    features=("penalties", "extremes"),
    check="probabilistic, penalties",
)
def _forget_drafts(_: Tensor, in_output: Tensor) -> Tensor:
    return torch.zeros_like(in_output)


@Bug.instead_of(
    request, "adjust_logits", "penalties before the bias", features=("penalties", "bias")
)
def _penalties_before_bias(
    batch: VerifyBatch, params: SamplingTensors, requests: Tensor, *logits_and_drafts: Tensor
) -> Tensor:
    unbiased = evolve(params, bias=None)
    adjusted = statistics.adjust_logits(batch, unbiased, requests, *logits_and_drafts)
    if params.bias is not None:
        adjusted = statistics._add_bias(adjusted, params.bias, requests)
    return adjusted.to(torch.float64)


@Bug.instead_of(thresholds, "_keep_from", "filters cut the edge", features=("top-k",))
def _keep_above(scaled: Tensor, threshold: Tensor) -> Tensor:
    highest = scaled.amax(dim=-1, keepdim=True)
    return scaled.masked_fill((scaled <= threshold) & (scaled < highest), -torch.inf)


def _top_p(scaled: Tensor, top_p: Tensor, *, one_less: bool) -> Tensor:
    """Keep one token less, or one more where the mass before it is exactly top_p."""
    ordered = scaled.sort(dim=-1, descending=True).values
    mass = ordered.softmax(dim=-1).cumsum(dim=-1)
    kept = mass < top_p if one_less else mass.roll(1, dims=-1) <= top_p
    kept[:, 0] = True
    last_kept = ordered.gather(1, kept.sum(dim=-1, keepdim=True) - 1)
    return scaled.masked_fill((scaled < last_kept) & (top_p < 1), -torch.inf)


EARLY_TOP_P = Bug.instead_of(
    thresholds, "_cut_top_p", "top-p stops early", features=("top-p",), least_vocab_size=100
)(partial(_top_p, one_less=True))
LATE_TOP_P = Bug.instead_of(
    thresholds, "_cut_top_p", "top-p goes on where its mass is reached", shown_by="reached exactly"
)(partial(_top_p, one_less=False))


@Bug.instead_of(thresholds, "_filtered", "top-p before top-k", features=("top-p", "top-k"))
def _top_p_first(scaled: Tensor, filters: Any, requests: Tensor) -> Tensor:
    if filters.any_top_p:
        scaled = thresholds._cut_top_p(scaled, filters.top_p[requests, None].to(torch.float64))
    if filters.any_top_k:
        scaled = thresholds._cut_top_k(scaled, filters.top_k[requests, None].long())
    if filters.any_min_p:
        scaled = thresholds._cut_min_p(scaled, filters.min_p[requests, None].to(torch.float64))
    return scaled


@Bug.instead_of(thresholds, "_cut_top_k", "top-k breaks ties", features=("top-k",))
def _exactly_k(scaled: Tensor, top_k: Tensor) -> Tensor:
    rank = torch.where(top_k == 0, scaled.shape[1], top_k).clamp(max=scaled.shape[1])
    order = scaled.sort(dim=-1, descending=True, stable=True).indices.argsort(dim=-1)
    return scaled.masked_fill(order >= rank, -torch.inf)


@Bug.misreads("draft recipe ignored in verification", features=("temperature",))
def _draft_without_recipe(batch: Any, params: SamplingTensors) -> tuple[Any, SamplingTensors]:
    if isinstance(batch, SampleBatch):
        return batch, params
    ones = torch.where(params.draft.temperature == 0, 0.0, 1.0)
    plain = evolve(
        params.draft, temperature=ones, any_min_p=False, any_top_k=False, any_top_p=False
    )
    return batch, evolve(params, draft=plain)


OF_BLOCK = {"policy": "block", "check": "block, draft model"}
FIRST_FAILURE = Bug.instead_of(Block, "rule", "block stops at the first failure", **OF_BLOCK)(
    Rule.FIRST_FAILURE
)
UNCONDITIONAL = Bug.instead_of(
    Synthetic, "conditional_rates", "synthetic rates taken as conditional", policy="synthetic"
)(property(attrgetter("rates")))


@Bug.instead_of(
    Fly, "_forgiven", "fly's window too short", policy="fly", features=("equal drafter",)
)
def _shorter_window(policy: Fly, view: DraftView, right: Right = Fly._forgiven) -> Tensor:
    return right(evolve(policy, window=max(policy.window - 1, 0)), view)


@Bug.instead_of(Typical, "_accepted", "typical takes the larger bound", policy="typical")
def _larger_threshold(policy: Typical, view: DraftView) -> Tensor:
    log_p = view.target_log_probs[: view.num_draft_tokens]
    threshold = (policy.delta * (-entropy(log_p)).exp()).clamp(min=policy.epsilon)
    return log_p.exp() > threshold[:, None]


@Bug.instead_of(RelaxedTopN, "_accepted", "relaxed breaks ties", policy="relaxed")
def _only_n(policy: RelaxedTopN, view: DraftView) -> Tensor:
    p = view.target_log_probs[: view.num_draft_tokens].exp()
    largest = p.topk(min(policy.top_n, p.shape[1]), dim=-1)
    inside = torch.zeros_like(p, dtype=torch.bool).scatter_(1, largest.indices, 1)
    return inside & (p >= largest.values[:, :1] - policy.delta) & (p > 0)


@Bug.instead_of(
    RelaxedTopN,
    "_accepted",
    "relaxed ranks by float32 probabilities",
    policy="relaxed",
    features=("arbitrary drafts", "extremes"),
)
def _by_probability(
    policy: RelaxedTopN, view: DraftView, right: Right = RelaxedTopN._accepted
) -> Tensor:
    return right(policy, evolve(view, target_logits=view.target_log_probs.float()))


BUGS = bugs_of(vars())
