"""The proof by sampling where 151,936 tokens are nearly equal: what draws, how tokens are binned.

A coarse exponential shows there first.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from acceptor.backends.conformance.loading import load_backend
from acceptor.core import Probabilistic, SampleBatch, Sampler, VerifyBatch
from kit.many_seeds import params_of, spread_seeds
from kit.proof.device_words import words_made_on
from kit.proof.goodness import Goodness, goodness
from kit.proof.grouped import grouped_first_tokens, grouped_sample
from kit.proof.pace import UNHURRIED, Pace
from kit.proof.samples import Size

LARGE_VOCABULARY = 151_936
BLOCK = 512
POSITION = 9

Drawing = Callable[[Tensor], Tensor]
"""[num_reqs] seeds -> [num_reqs] tokens."""

Ways = dict[str, tuple[Drawing, Tensor]]
"""What draws, and the logits that the tokens should follow."""


def near_uniform_draws(
    backend: str, device: torch.device, size: Size, pace: Pace = UNHURRIED
) -> Iterator[tuple[str, str, Goodness]]:
    """What draws, how the tokens are binned, and the tests."""
    target, draft = near_uniform_logits(device)
    ways = grouped_ways if backend == "reference" else partial(sampler_ways, load_backend(backend))
    for name, (drawing, logits) in ways(target, draft).items():
        counts = torch.zeros(LARGE_VOCABULARY, dtype=torch.int64, device=device)
        for begin, num_reqs in pace.batches(size.draws, size.draws_at_once, name):
            seeds = spread_seeds(num_reqs, begin, device)
            with words_made_on(device):
                counts += drawing(seeds).bincount(minlength=LARGE_VOCABULARY)
        law = logits.cpu().double().softmax(dim=0)
        for bins, binned in BINS.items():
            yield name, bins, goodness(binned(counts.cpu()).numpy(), binned(law).numpy())


def near_uniform_logits(device: torch.device) -> tuple[Tensor, Tensor]:
    """Of the target and of the draft: [LARGE_VOCABULARY] each."""
    generator = torch.Generator().manual_seed(7)
    target, draft = (0.05 * torch.randn(LARGE_VOCABULARY, generator=generator) for _ in range(2))
    return target.to(device), draft.to(device)


def _by_block(values: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(values, (0, -len(values) % BLOCK))
    return padded.view(-1, BLOCK).sum(dim=1)


def _by_place(values: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(values, (0, -len(values) % BLOCK))
    return padded.view(-1, BLOCK).sum(dim=0)


BINS: dict[str, Callable[[Tensor], Tensor]] = {
    "block": _by_block,
    "place in the block": _by_place,
    "token": lambda values: values,
}


def grouped_ways(target: Tensor, draft: Tensor) -> Ways:
    """The reference, with what is alike computed once."""
    return {
        "plain sampling": (lambda seeds: grouped_sample(target, seeds, POSITION, None), target),
        "drafting": (lambda seeds: grouped_sample(draft, seeds, POSITION, 1), draft),
        "probabilistic": (
            lambda seeds: grouped_first_tokens(target, draft, seeds, POSITION),
            target,
        ),
    }


def sampler_ways(sampler: Sampler, target: Tensor, draft: Tensor) -> Ways:
    """Any backend."""

    def sampled(logits: Tensor, place: int | None) -> Drawing:
        def drawing(seeds: Tensor) -> Tensor:
            batch = SampleBatch(
                logits=logits.expand(len(seeds), -1),
                positions=torch.full_like(seeds, POSITION),
                draft_index=place,
            )
            return sampler.sample(batch, params_of(seeds)).token_ids

        return drawing

    def verified(seeds: Tensor) -> Tensor:
        num_reqs = len(seeds)
        batch = VerifyBatch(
            target_logits=target.expand(2 * num_reqs, -1),
            cu_num_logits=2 * torch.arange(num_reqs + 1, device=seeds.device),
            draft_token_ids=sampled(draft, 1)(seeds)[:, None],
            positions=torch.full_like(seeds, POSITION),
            draft_logits=draft.expand(num_reqs, 1, -1),
        )
        return sampler.verify(batch, params_of(seeds), Probabilistic()).token_ids[:, 0]

    return {
        "plain sampling": (sampled(target, None), target),
        "drafting": (sampled(draft, 1), draft),
        "probabilistic": (verified, target),
    }
