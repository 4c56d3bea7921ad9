"""What chance almost never asks: the smallest and largest random words, ties, and slots.

Each check counts wrong tokens of a sampler. The right token is known in advance, so one is too
many.
"""

import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.conformance import corners as rare_words
from acceptor.backends.conformance.calls import Backend
from acceptor.core import (
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Stream,
    VerifyBatch,
)
from acceptor.core.randomness import Level

LARGE_VOCABULARY = 151_936
BLOCK = 512
LEAST = 1e-8
"""The share of its rivals' mass that the candidate with the rare word has."""

NEVER = -torch.inf
SURE, UNSURE = [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]


def wrong_tails(sampler: Backend, device: torch.device) -> int:
    """Near-uniform logits over a large vocabulary, but one candidate is a rare one.

    It must win with the smallest exponential there is, and must not with the largest. Where
    exponentials are coarse near 0, or -log u, it is the other way round.
    """
    wrong = 0
    for words, wins in ((rare_words.WORDS_0, True), (rare_words.WORDS_MAX, False)):
        for (stream, level), (seed, candidate) in words.items():
            if stream is not Stream.RECOVER:
                token = _draw_against(sampler, device, seed, stream, level, candidate)
                wrong += (_candidate_of(token, level) == candidate) is not wins
    return wrong


def _draw_against(
    sampler: Backend, device: torch.device, seed: int, stream: Stream, level: Level, candidate: int
) -> int:
    logits = 0.01 * torch.randn(LARGE_VOCABULARY, generator=torch.Generator().manual_seed(seed))
    if level is Level.BLOCK:
        rare = slice(candidate * BLOCK, (candidate + 1) * BLOCK)
    else:
        logits[BLOCK:] -= 60.0
        rare = slice(candidate, candidate + 1)
    weights = logits.double().exp()
    mass = weights[rare].sum()
    logits[rare] += torch.log(LEAST * (weights.sum() - mass) / mass).float()
    batch = SampleBatch(
        logits=logits[None].to(device),
        positions=torch.tensor([rare_words.POSITION], device=device),
        draft_index=None if stream is Stream.TARGET else 1,
    )
    params = SamplingTensors.stack([SamplingParams(seed=seed)], device)
    return int(sampler.sample(batch, params).token_ids)


def _candidate_of(token: int, level: Level) -> int:
    return token // BLOCK if level is Level.BLOCK else token


def wrong_at_the_lowest_uniform(sampler: Backend, device: torch.device) -> int:
    """A token that the target never gives must be refused by the smallest uniform, too."""
    target = torch.tensor([[NEVER, 0.0, 0.0], UNSURE, UNSURE])
    draft = torch.tensor([[0.0, 0.0, 0.0], SURE])
    seed = rare_words.SEED_OF_LOWEST_UNIFORM
    return int(_accepted(sampler, device, seed, target, draft) > 0)


def wrong_at_the_highest_uniform(sampler: Backend, device: torch.device) -> int:
    """A token as likely under both models must be kept by the largest uniform, too."""
    target = torch.tensor([UNSURE, UNSURE, UNSURE])
    draft = torch.tensor([UNSURE, SURE])
    seed = rare_words.SEED_OF_HIGHEST_UNIFORM
    return int(_accepted(sampler, device, seed, target, draft) < 1)


def _accepted(
    sampler: Backend, device: torch.device, seed: int, target: Tensor, draft: Tensor
) -> int:
    """How much of the draft 0, 0 is accepted."""
    batch = VerifyBatch.dense(
        target_logits=target[None].to(device),
        draft_token_ids=torch.tensor([[0, 0]], device=device),
        positions=torch.tensor([rare_words.POSITION], device=device),
        draft_logits=draft[None].to(device),
    )
    params = SamplingTensors.stack([SamplingParams(seed=seed)], device)
    return int(sampler.verify(batch, params, Probabilistic()).num_accepted)


def wrong_at_top_p(sampler: Backend, device: torch.device) -> int:
    """Where half of eight equal masses is top-p, only the four largest logits are drawn.

    The logits differ by too little for their weights to differ.
    """
    num_reqs = 64
    logits = (1e-30 * torch.arange(8)).expand(num_reqs, 8).contiguous()
    batch = SampleBatch(logits=logits.to(device), positions=torch.arange(num_reqs, device=device))
    params = SamplingTensors.stack([SamplingParams(seed=1, top_p=0.5)] * num_reqs, device)
    return int((sampler.sample(batch, params).token_ids < 4).sum())


def wrong_ties(sampler: Backend, device: torch.device) -> int:
    """At temperature 0 the lowest of several most likely ids is emitted."""
    logits = torch.zeros(2, 3, 1200)
    logits[:, :, [7, 600, 1199]] = 1.0
    batch = VerifyBatch.dense(
        target_logits=logits.to(device),
        draft_token_ids=torch.tensor([[7, 7], [600, 7]], device=device),
        positions=torch.tensor([0, 0], device=device),
    )
    params = SamplingTensors.stack([SamplingParams(seed=1, temperature=0.0)] * 2, device)
    output = sampler.verify(batch, params, Probabilistic())
    expected = torch.tensor([[7, 7, 7], [7, -1, -1]], device=device)
    return int((output.token_ids != expected).sum())


def changed_by_slots(sampler: Backend, device: torch.device) -> int:
    """Requests that lie in other slots and another order emit the same tokens."""
    num_reqs, generator = 32, torch.Generator().manual_seed(1)
    shape = (num_reqs, 3, 5)
    batch = VerifyBatch.dense(
        target_logits=torch.randn(shape, generator=generator).to(device),
        draft_token_ids=torch.randint(5, (num_reqs, 2), generator=generator).to(device),
        positions=torch.arange(num_reqs, device=device),
        draft_logits=torch.randn((num_reqs, 2, 5), generator=generator).to(device),
        slot_ids=torch.arange(num_reqs, device=device),
    )
    order = torch.randperm(num_reqs, generator=generator).to(device)
    assert batch.slot_ids is not None
    assert batch.draft_logits is not None
    moved = evolve(
        batch,
        target_logits=batch.target_logits.view(shape)[order].flatten(0, 1),
        draft_token_ids=batch.draft_token_ids[order],
        positions=batch.positions[order],
        draft_logits=batch.draft_logits.flip(0),
        slot_ids=(num_reqs - 1 - batch.slot_ids)[order],
    )
    policy: Policy = Probabilistic()
    params = [SamplingParams(seed=seed) for seed in range(num_reqs)]
    there = [params[index] for index in order.tolist()]
    here = sampler.verify(batch, SamplingTensors.stack(params, device), policy).token_ids
    other = sampler.verify(moved, SamplingTensors.stack(there, device), policy).token_ids
    return int((here[order] != other).any(dim=1).sum())
