"""The proof by sampling with 151,936 nearly equal tokens, where a coarse exponential shows."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from acceptor.core import Probabilistic, SampleBatch, Sampler, SamplingParams, VerifyBatch
from kit.chi_square import Goodness, goodness
from lab.proof.runs import params_of, parts, spread_seeds

LARGE_VOCABULARY = 151_936
BLOCK = 512
POSITION = 9
PLAIN = SamplingParams(seed=0)


def near_uniform_draws(
    backend: Sampler,
    device: torch.device,
    num_draws: int,
    chunk: int,
    deadline: float | None = None,
) -> Iterator[tuple[str, str, Goodness]]:
    """For each way to draw and to bin tokens, the results of the tests."""
    generator = torch.Generator().manual_seed(7)
    target, draft = (0.05 * torch.randn(LARGE_VOCABULARY, generator=generator) for _ in range(2))
    for name, drawing, logits in (
        ("plain sampling", _sampled(backend, target.to(device), None), target),
        ("drafting", _sampled(backend, draft.to(device), 1), draft),
        ("probabilistic", _verified(backend, target.to(device), draft.to(device)), target),
    ):
        counts = torch.zeros(LARGE_VOCABULARY, dtype=torch.int64)
        for begin, num_reqs in parts(num_draws, chunk, deadline):
            drawn = drawing(spread_seeds(num_reqs, begin, device))
            counts += drawn.cpu().bincount(minlength=LARGE_VOCABULARY)
        law = logits.double().softmax(dim=0)
        for bins, binned in BINS.items():
            yield name, bins, goodness(binned(counts).numpy(), binned(law).numpy())


def _by_blocks(values: Tensor, dim: int) -> Tensor:
    padded = torch.nn.functional.pad(values, (0, -len(values) % BLOCK))
    return padded.view(-1, BLOCK).sum(dim=dim)


BINS: dict[str, Callable[[Tensor], Tensor]] = {
    "block": partial(_by_blocks, dim=1),
    "place in the block": partial(_by_blocks, dim=0),
    "token": lambda values: values,
}


def _sampled(backend: Sampler, logits: Tensor, place: int | None) -> Callable[[Tensor], Tensor]:
    def draw(seeds: Tensor) -> Tensor:
        batch = SampleBatch(
            logits=logits.expand(len(seeds), -1),
            positions=torch.full_like(seeds, POSITION),
            draft_index=place,
        )
        return backend.sample(batch, params_of(seeds, PLAIN)).token_ids

    return draw


def _verified(backend: Sampler, target: Tensor, draft: Tensor) -> Callable[[Tensor], Tensor]:
    """The first token of each request that drafts one and verifies it."""
    drafting = _sampled(backend, draft, 1)

    def draw(seeds: Tensor) -> Tensor:
        num_reqs = len(seeds)
        batch = VerifyBatch(
            target_logits=target.expand(2 * num_reqs, -1),
            cu_num_logits=2 * torch.arange(num_reqs + 1, device=seeds.device),
            draft_token_ids=drafting(seeds)[:, None].clone(),
            positions=torch.full_like(seeds, POSITION),
            draft_logits=draft.expand(num_reqs, 1, -1),
        )
        return backend.verify(batch, params_of(seeds, PLAIN), Probabilistic()).token_ids[:, 0]

    return draw
