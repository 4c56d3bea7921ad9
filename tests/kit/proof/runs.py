"""Whole decode runs of many requests at once, drafter included, on any backend.

The models look at one token back, so that the law of any number of tokens can be written down.
"""

from collections.abc import Callable

import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.core import (
    Policy,
    SampleBatch,
    Sampler,
    SamplingParams,
    VerifyBatch,
)
from kit.many_seeds import params_of


@frozen(eq=False)
class Chain:
    """Two models that look one token back, and how they decode.

    Attributes:
        target: [vocab_size + 1, vocab_size] logits after each token; the last row is the start.
        draft: [vocab_size + 1, draft_vocab_size].
        num_spec_tokens: K.
        num_tokens: how many tokens of a run are looked at.
        params: of every request, but for the seed.
        draft_to_target: target id of each draft id; None means the same.
    """

    target: Tensor
    draft: Tensor
    num_spec_tokens: int = 2
    num_tokens: int = 3
    params: SamplingParams = SamplingParams(seed=0)
    draft_to_target: Tensor | None = None

    @property
    def vocab_size(self) -> int:
        """Of the target."""
        return self.target.shape[1]

    def to(self, device: torch.device) -> "Chain":
        """The same on a device."""
        ids = None if self.draft_to_target is None else self.draft_to_target.to(device)
        target, draft = self.target.to(device), self.draft.to(device)
        return evolve(self, target=target, draft=draft, draft_to_target=ids)


@frozen(eq=False)
class Runs:
    """What came out.

    Attributes:
        token_ids: [num_reqs, num_tokens].
        again: [num_reqs, 2] where the first step rejected a draft: the last token it emitted, and
            the first one of the next step, at a position that had been drafted already; -1 where
            it rejected none.
        num_accepted: [num_reqs] of the first step.
    """

    token_ids: Tensor
    again: Tensor
    num_accepted: Tensor

    def split(self, num_reqs: int) -> list["Runs"]:
        """Parts of so many runs."""
        columns = (part.split(num_reqs) for part in (self.token_ids, self.again, self.num_accepted))
        return [Runs(*part) for part in zip(*columns, strict=True)]


Step = Callable[[Chain, Policy, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(chain, policy, seeds, positions, tokens before), each [n] -> (token_ids [n, K + 1], accepted
[n])."""


def decode(chain: Chain, policy: Policy, seeds: Tensor, step: Step) -> Runs:
    """Step until every run has its tokens."""
    num_reqs, device = len(seeds), seeds.device
    room = chain.num_tokens + chain.num_spec_tokens + 1
    text = torch.full((num_reqs, room), -1, device=device)
    lengths = torch.zeros_like(seeds)
    again = torch.full((num_reqs, 2), -1, device=device)
    for number in range(chain.num_tokens):
        left = (lengths < chain.num_tokens).nonzero().squeeze(1)
        before = text[left, (lengths[left] - 1).clamp(min=0)]
        before = before.where(lengths[left] > 0, chain.vocab_size)
        emitted, accepted = step(chain, policy, seeds[left], lengths[left], before)
        for place in range(emitted.shape[1]):
            here = emitted[:, place] >= 0
            text[left[here], lengths[left[here]] + place] = emitted[here, place]
        if number == 0:
            num_accepted = accepted
        if number == 1:
            chosen = num_accepted[left] < chain.num_spec_tokens
            again[left[chosen]] = torch.stack((before, emitted[:, 0]), dim=1)[chosen]
        lengths[left] += accepted + 1
    return Runs(text[:, : chain.num_tokens], again, num_accepted)


def step_of(sampler: Sampler) -> Step:
    """One decode step, all of it by the sampler."""

    def step(
        chain: Chain, policy: Policy, seeds: Tensor, positions: Tensor, before: Tensor
    ) -> tuple[Tensor, Tensor]:
        params = params_of(seeds, chain.params)
        contexts = [before]
        for place in range(chain.num_spec_tokens):
            batch = SampleBatch(
                logits=chain.draft[contexts[-1]],
                positions=positions + place,
                draft_index=place + 1,
                draft_stream=policy.draft_stream,
                draft_to_target=chain.draft_to_target,
                target_vocab_size=chain.vocab_size,
            )
            contexts.append(sampler.sample(batch, params).token_ids)
        batch_of_all = VerifyBatch.dense(
            target_logits=chain.target[torch.stack(contexts, dim=1)],
            draft_token_ids=torch.stack(contexts[1:], dim=1),
            positions=positions,
            draft_logits=chain.draft[torch.stack(contexts[:-1], dim=1)],
            draft_to_target=chain.draft_to_target,
        )
        output = sampler.verify(batch_of_all, params, policy)
        return output.token_ids, output.num_accepted.long()

    return step
