"""The proof by sampling: which draws are counted, where, and how many.

Everything is drawn by the sampler under test, drafts included. This module refuses to say what is
good enough: see `kit.proof.goodness`.
"""

from collections.abc import Callable, Iterator

import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends.conformance.loading import load_backend
from acceptor.core import (
    Policy,
    Probabilistic,
    Recipe,
    SampleBatch,
    Sampler,
    SamplingParams,
    UnavailableError,
    VerifyBatch,
)
from kit.proof.cases import POLICIES
from kit.proof.frequencies import Comparison, compare, random_chain
from kit.proof.goodness import Goodness, goodness
from kit.proof.grouped import grouped_step
from kit.proof.runs import Chain, Step, params_of, spread_seeds, step_of

LARGE_VOCABULARY = 151_936
BLOCK = 512

PLAIN = random_chain(4)
CHAINS: dict[str, Chain] = {
    "draft model": PLAIN,
    "other recipe": evolve(
        PLAIN, params=SamplingParams(seed=0, temperature=0.8, top_k=3, draft=Recipe(top_p=0.9))
    ),
    "mapped": evolve(
        PLAIN, draft=PLAIN.draft[:, :3].contiguous(), draft_to_target=torch.tensor([3, 0, 2])
    ),
}


@frozen
class Size:
    """How much is drawn.

    Attributes:
        runs: decode runs for every policy with the plain chain.
        runs_elsewhere: with the other chains.
        draws: draws from the large vocabulary, on each way.
        chunk, draws_at_once: how many of either fit into memory together.
    """

    runs: int
    runs_elsewhere: int
    draws: int
    chunk: int = 1 << 17
    draws_at_once: int = 4


SHORT = Size(runs=20_000, runs_elsewhere=1_000, draws=1_000)
FULL = Size(runs=100_000, runs_elsewhere=1_500, draws=5_000)
ON_A_GPU = Size(
    runs=10_000_000,
    runs_elsewhere=2_000_000,
    draws=10_000_000,
    chunk=1 << 19,
    draws_at_once=1 << 15,
)


def sampled_runs(
    backend: str, device: torch.device, size: Size
) -> Iterator[tuple[Policy, str, Comparison]]:
    """Every policy that the backend has, with every chain."""
    sampler = load_backend(backend)
    quick = grouped_step if backend == "reference" and device.type == "cpu" else step_of(sampler)
    for policy in POLICIES:
        for name, chain in CHAINS.items():
            step, runs = (
                (quick, size.runs) if chain is PLAIN else (step_of(sampler), size.runs_elsewhere)
            )
            compared = _compared(chain, policy, step, runs, device, size.chunk)
            if compared is not None:
                yield policy, name, compared


def _compared(
    chain: Chain, policy: Policy, step: Step, runs: int, device: torch.device, chunk: int
) -> Comparison | None:
    try:
        return compare(chain, policy, step, runs, device, chunk)
    except UnavailableError:
        return None


def near_uniform_draws(
    sampler: Sampler, device: torch.device, size: Size
) -> Iterator[tuple[str, str, Goodness]]:
    """Draws from 151,936 nearly equal tokens: what draws, how the tokens are binned, the tests."""
    generator = torch.Generator().manual_seed(7)
    target, draft = (0.05 * torch.randn(LARGE_VOCABULARY, generator=generator) for _ in range(2))
    for name, drawing, logits in _ways(sampler, target.to(device), draft.to(device)):
        counts = torch.zeros(LARGE_VOCABULARY, dtype=torch.int64, device=device)
        for begin in range(0, size.draws, size.draws_at_once):
            num_reqs = min(size.draws_at_once, size.draws - begin)
            drawn = drawing(spread_seeds(begin, num_reqs, device))
            counts += drawn.bincount(minlength=LARGE_VOCABULARY)
        for bins, binned in BINS.items():
            law = logits.cpu().double().softmax(dim=0)
            yield name, bins, goodness(binned(counts.cpu()).numpy(), binned(law).numpy())


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

Drawing = Callable[[Tensor], Tensor]


def _ways(sampler: Sampler, target: Tensor, draft: Tensor) -> Iterator[tuple[str, Drawing, Tensor]]:
    """Each [num_reqs] seeds -> [num_reqs] tokens, and the logits they should follow."""

    def sampled(logits: Tensor, place: int | None) -> Drawing:
        def drawing(seeds: Tensor) -> Tensor:
            batch = SampleBatch(
                logits=logits.expand(len(seeds), -1),
                positions=torch.full_like(seeds, 9),
                draft_index=place,
            )
            return sampler.sample(batch, params_of(SamplingParams(seed=0), seeds)).token_ids

        return drawing

    def verified(seeds: Tensor) -> Tensor:
        num_reqs = len(seeds)
        batch = VerifyBatch(
            target_logits=target.expand(2 * num_reqs, -1),
            cu_num_logits=2 * torch.arange(num_reqs + 1, device=seeds.device),
            draft_token_ids=sampled(draft, 1)(seeds)[:, None],
            positions=torch.full_like(seeds, 9),
            draft_logits=draft.expand(num_reqs, 1, -1),
        )
        params = params_of(SamplingParams(seed=0), seeds)
        return sampler.verify(batch, params, Probabilistic()).token_ids[:, 0]

    yield "plain sampling", sampled(target, None), target
    yield "drafting", sampled(draft, 1), draft
    yield "probabilistic", verified, target
