"""One decode step of a hundred thousand seeds at once: real drafting, real noise, real policies.

Requests with the same context and the same draft share thresholds and residuals, so the policy is
asked once for all of them. A test holds these steps against the sampler, token for token. This
module refuses policies that look at the target's own samples: their output is plain sampling.
"""

from collections.abc import Callable

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.reference.draw import acceptance_uniforms, draw
from acceptor.core import (
    DraftView,
    Policy,
    Rule,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Stream,
)

NextLogits = Callable[[Tensor], Tensor]
"""The logits after each of these tokens, -1 for none: [n] -> [n, vocab_size]."""


def params_of(seeds: Tensor) -> SamplingTensors:
    """Plain parameters for every seed."""
    one = SamplingTensors.stack([SamplingParams(seed=0)])
    names = ("temperature", "min_p", "top_k", "top_p")
    recipe = evolve(one.target, **{n: getattr(one.target, n).expand(len(seeds)) for n in names})
    processed = one.logprobs_processed.expand(len(seeds))
    return evolve(one, seeds=seeds, target=recipe, draft=recipe, logprobs_processed=processed)


def spread_seeds(num_reqs: int) -> Tensor:
    """Seeds that differ in all of their bits."""
    return torch.arange(num_reqs) * -0x61C8864680B583EB


def drafts_of(
    model: NextLogits, seeds: Tensor, last: Tensor, start: int, num_drafts: int, policy: Policy
) -> Tensor:
    """Draft with the sampler: [num_reqs, num_drafts]."""
    params, drafts = params_of(seeds), [last]
    for place in range(num_drafts):
        batch = SampleBatch(
            logits=model(drafts[-1]),
            positions=torch.full_like(seeds, start + place),
            draft_index=place + 1,
            draft_stream=policy.draft_stream,
        )
        drafts.append(load_sampler("reference").sample(batch, params).token_ids)
    return torch.stack(drafts[1:], dim=1)


def step(
    models: tuple[NextLogits, NextLogits],
    seeds: Tensor,
    last: Tensor,
    start: int,
    num_drafts: int,
    policy: Policy,
) -> tuple[Tensor, Tensor]:
    """Draft and verify once.

    Args:
        models: target and draft.
        seeds: [num_reqs].
        last: [num_reqs] the token before, -1 for none.
        start: the position that the first draft token is for.
        num_drafts: K.
        policy: decides.

    Returns:
        Token ids [num_reqs, K + 1], -1 where nothing was emitted, and accepted ones [num_reqs].
    """
    drafts = drafts_of(models[1], seeds, last, start, num_drafts, policy)
    token_ids = torch.full((len(seeds), num_drafts + 1), -1)
    num_accepted = torch.zeros_like(seeds)
    texts = torch.cat((last[:, None], drafts), dim=1)
    for text in texts.unique(dim=0):
        alike = (texts == text).all(dim=1)
        view = _view(models, text)
        accepted = _num_accepted(view, policy, seeds[alike], start)
        token_ids[alike] = _emitted(view, policy, seeds[alike], start, accepted)
        num_accepted[alike] = accepted
    return token_ids, num_accepted


def _view(models: tuple[NextLogits, NextLogits], text: Tensor) -> DraftView:
    target, draft = (model(text).double().log_softmax(dim=-1) for model in models)
    return DraftView(text[1:], target, draft[:-1], None)


def _num_accepted(view: DraftView, policy: Policy, seeds: Tensor, start: int) -> Tensor:
    verdicts = torch.stack(
        [
            acceptance_uniforms(*_keys(seeds, start, place)).log() < threshold
            for place, threshold in enumerate(policy.log_thresholds(view))
        ],
        dim=1,
    ).long()
    if policy.rule is Rule.FIRST_FAILURE:
        return verdicts.cumprod(dim=1).sum(dim=1)
    return (verdicts * torch.arange(1, verdicts.shape[1] + 1)).amax(dim=1)


def _emitted(
    view: DraftView, policy: Policy, seeds: Tensor, start: int, num_accepted: Tensor
) -> Tensor:
    num_drafts = view.num_draft_tokens
    emitted = torch.full((len(seeds), num_drafts + 1), -1)
    for accepted in num_accepted.unique().tolist():
        chosen = num_accepted == accepted
        weights, stream = view.target_log_probs[num_drafts], Stream.TARGET
        if accepted < num_drafts:
            residual = policy.log_residual(view, accepted)
            assert residual is not None
            weights, stream = residual, Stream.RECOVER
        keys = _keys(seeds[chosen], start, accepted)
        emitted[chosen, :accepted] = view.draft_token_ids[:accepted]
        emitted[chosen, accepted] = draw(weights.expand(len(keys[0]), -1), *keys, stream)
    return emitted


def _keys(seeds: Tensor, start: int, place: int) -> tuple[Tensor, Tensor, Tensor]:
    return seeds, torch.full_like(seeds, start + place), torch.full_like(seeds, place + 1)
