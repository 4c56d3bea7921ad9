"""The reference's decode step for a hundred thousand requests: alike ones are decided together.

Requests with the same context, draft and target samples share their thresholds, so the policy is
asked once for all of them. A test holds it against the sampler, token for token.
"""

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.reference.draw import draw
from acceptor.core import Policy, Stream
from kit import many_seeds
from kit.proof.runs import Chain


def grouped_step(
    chain: Chain, policy: Policy, seeds: Tensor, positions: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """A `kit.proof.runs.Step` for chains with plain parameters."""
    token_ids = torch.full((len(seeds), chain.num_spec_tokens + 1), -1)
    accepted = torch.zeros_like(seeds)
    has_residual = policy.lossless and not policy.uses_target_samples
    decide = _by_probabilities if has_residual else _by_target_samples
    for start in positions.unique().tolist():
        here = positions == start
        token_ids[here], accepted[here] = decide(chain, policy, seeds[here], start, before[here])
    return token_ids, accepted


def _by_probabilities(
    chain: Chain, policy: Policy, seeds: Tensor, start: int, before: Tensor
) -> tuple[Tensor, Tensor]:
    models = chain.target.__getitem__, chain.draft.__getitem__
    return many_seeds.step(models, seeds, before, start, chain.num_spec_tokens, policy)


def _by_target_samples(
    chain: Chain, policy: Policy, seeds: Tensor, start: int, before: Tensor
) -> tuple[Tensor, Tensor]:
    models = chain.target.__getitem__, chain.draft.__getitem__
    num_drafts = chain.num_spec_tokens
    drafts = many_seeds.drafts_of(models[1], seeds, before, start, num_drafts, policy)
    texts = torch.cat((before[:, None], drafts), dim=1)
    samples = _target_samples(chain, seeds, start, texts)
    accepted = torch.zeros_like(seeds)
    cases, numbers = torch.cat((texts, samples), dim=1).unique(dim=0, return_inverse=True)
    for number, case in enumerate(cases):
        alike = numbers == number
        view = evolve(
            many_seeds._view(models, case[: num_drafts + 1]),
            target_token_ids=case[num_drafts + 1 :],
        )
        accepted[alike] = many_seeds._num_accepted(view, policy, seeds[alike], start)
    places = torch.arange(num_drafts + 1)
    padded = torch.nn.functional.pad(drafts, (0, 1), value=-1)
    emitted = torch.where(places < accepted[:, None], padded, -1)
    return torch.where(places == accepted[:, None], samples, emitted), accepted


def _target_samples(chain: Chain, seeds: Tensor, start: int, texts: Tensor) -> Tensor:
    rows = [
        draw(
            chain.target[texts[:, place]].double().log_softmax(dim=-1),
            seeds,
            torch.full_like(seeds, start + place),
            torch.zeros_like(seeds),
            Stream.TARGET,
        )
        for place in range(texts.shape[1])
    ]
    return torch.stack(rows, dim=1)
