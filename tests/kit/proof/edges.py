"""What chance almost never asks: the smallest and largest random words, ties, and slots.

Each check counts wrong tokens of a sampler. The right token is known in advance, so one is too
many.
"""

import torch

from acceptor.backends.conformance import Case, run_case
from acceptor.backends.conformance.calls import Backend, Watched
from acceptor.backends.conformance.corners import (
    POSITION,
    SEED_OF_HIGHEST_UNIFORM,
    WORDS_0,
    WORDS_MAX,
    corners,
)
from acceptor.core import (
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


def wrong_tails(sampler: Backend, device: torch.device) -> int:
    """Near-uniform logits over a large vocabulary, but one candidate is a rare one.

    It must win with the smallest exponential there is, and must not with the largest. Where
    exponentials are coarse near 0, or -log u, it is the other way round.
    """
    wrong = 0
    for words, wins in ((WORDS_0, True), (WORDS_MAX, False)):
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
        positions=torch.tensor([POSITION], device=device),
        draft_index=None if stream is Stream.TARGET else 1,
    )
    params = SamplingTensors.stack([SamplingParams(seed=seed)], device)
    return int(sampler.sample(batch, params).token_ids)


def _candidate_of(token: int, level: Level) -> int:
    return token // BLOCK if level is Level.BLOCK else token


def wrong_in(part: str, sampler: Backend, device: torch.device) -> int:
    """What the oracle finds in the corners of the conformance kit that have this in their name."""
    found = [corner.check(Watched(sampler, device)) for corner in corners() if part in corner.name]
    assert found
    return sum(len(some.unexplained) for some in found)


def wrong_at_the_highest_uniform(sampler: Backend, device: torch.device) -> int:
    """A token as likely under both models must be kept by the largest uniform, too."""
    batch = VerifyBatch.dense(
        target_logits=torch.zeros(1, 3, 3, device=device),
        draft_token_ids=torch.tensor([[0, 0]], device=device),
        positions=torch.tensor([POSITION], device=device),
        draft_logits=torch.tensor([[[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]], device=device),
    )
    params = SamplingTensors.stack([SamplingParams(seed=SEED_OF_HIGHEST_UNIFORM)], device)
    return int(sampler.verify(batch, params, Probabilistic()).num_accepted < 1)


def changed_by_slots(sampler: Backend, device: torch.device) -> int:
    """Requests that lie in other slots and another order emit the same tokens."""
    case = Case(
        seed=4,
        vocab_size=40,
        num_draft_tokens=(2,) * 20,
        policy=Probabilistic(),
        features=frozenset(("slots",)),
        variation="in part",
    )
    found = run_case(case, sampler, device)
    assert found is not None
    return len(found.unexplained)
