"""The proof by sampling where 151,936 tokens are nearly equal: a coarse exponential shows there."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from acceptor.backends.conformance.calls import Backend
from acceptor.backends.reference import draw
from acceptor.core import DraftView, Probabilistic, SampleBatch, Stream, VerifyBatch
from acceptor.core import race as core_race
from acceptor.core.randomness import Level, random_words
from kit.chi_square import Goodness, goodness
from kit.many_seeds import params_of, spread_seeds
from kit.proof.runs import parts

LARGE_VOCABULARY = 151_936
BLOCK = 512
POSITION = 9

Drawing = Callable[[Tensor], Tensor]
"""[num_reqs] seeds -> [num_reqs] tokens."""

Ways = dict[str, tuple[Drawing, Tensor]]
"""What draws, and the logits that the tokens should follow."""


def near_uniform_draws(
    ways: Callable[[Tensor, Tensor], Ways],
    device: torch.device,
    num_draws: int,
    chunk: int,
    deadline: float | None = None,
) -> Iterator[tuple[str, str, Goodness]]:
    """What draws, how the tokens are binned, and the tests."""
    for name, (drawing, logits) in ways(*near_uniform_logits(device)).items():
        counts = torch.zeros(LARGE_VOCABULARY, dtype=torch.int64, device=device)
        for begin, num_reqs in parts(num_draws, chunk, deadline):
            seeds = spread_seeds(num_reqs, begin, device)
            counts += drawing(seeds).bincount(minlength=LARGE_VOCABULARY)
        law = logits.cpu().double().softmax(dim=0)
        for bins, binned in BINS.items():
            yield name, bins, goodness(binned(counts.cpu()).numpy(), binned(law).numpy())


def near_uniform_logits(device: torch.device) -> tuple[Tensor, Tensor]:
    """Of the target and of the draft: [LARGE_VOCABULARY] each."""
    generator = torch.Generator().manual_seed(7)
    target, draft = (0.05 * torch.randn(LARGE_VOCABULARY, generator=generator) for _ in range(2))
    return target.to(device), draft.to(device)


def _by_blocks(values: Tensor, dim: int) -> Tensor:
    padded = torch.nn.functional.pad(values, (0, -len(values) % BLOCK))
    return padded.view(-1, BLOCK).sum(dim=dim)


BINS: dict[str, Callable[[Tensor], Tensor]] = {
    "block": partial(_by_blocks, dim=1),
    "place in the block": partial(_by_blocks, dim=0),
    "token": lambda values: values,
}


def ways_of(backend: Backend) -> Callable[[Tensor, Tensor], Ways]:
    """Any backend's."""

    def sampled(logits: Tensor, place: int | None, seeds: Tensor) -> Tensor:
        batch = SampleBatch(
            logits=logits.expand(len(seeds), -1),
            positions=torch.full_like(seeds, POSITION),
            draft_index=place,
        )
        return backend.sample(batch, params_of(seeds)).token_ids

    def verified(target: Tensor, draft: Tensor, seeds: Tensor) -> Tensor:
        num_reqs = len(seeds)
        batch = VerifyBatch(
            target_logits=target.expand(2 * num_reqs, -1),
            cu_num_logits=2 * torch.arange(num_reqs + 1, device=seeds.device),
            draft_token_ids=sampled(draft, 1, seeds)[:, None].clone(),
            positions=torch.full_like(seeds, POSITION),
            draft_logits=draft.expand(num_reqs, 1, -1),
        )
        return backend.verify(batch, params_of(seeds), Probabilistic()).token_ids[:, 0]

    return lambda target, draft: {
        "plain sampling": (partial(sampled, target, None), target),
        "drafting": (partial(sampled, draft, 1), draft),
        "probabilistic": (partial(verified, target, draft), target),
    }


def grouped_ways(target: Tensor, draft: Tensor) -> Ways:
    """The reference's, with what is alike computed once."""
    return {
        "plain sampling": (lambda seeds: _sample(target, seeds, None), target),
        "drafting": (lambda seeds: _sample(draft, seeds, 1), draft),
        "probabilistic": (lambda seeds: _first_tokens(target, draft, seeds), target),
    }


def _sample(logits: Tensor, seeds: Tensor, place: int | None) -> Tensor:
    stream = Stream.TARGET if place is None else Stream.DRAFT
    return _draw_alike(_law(logits), seeds, place or 0, stream)


def _first_tokens(target: Tensor, draft: Tensor, seeds: Tensor) -> Tensor:
    """The first token of each request that drafts one and verifies it: [num_reqs]."""
    log_p, log_q = _law(target), _law(draft)
    drafted = _sample(draft, seeds, 1)
    # As if all requests' drafts were one: its tokens are tested one by one, each on its row.
    view = DraftView(drafted, log_p.expand(len(seeds) + 1, -1), log_q.expand(len(seeds), -1), None)
    positions = torch.full_like(seeds, POSITION)
    uniforms = draw.acceptance_uniforms(seeds, positions, torch.ones_like(seeds))
    accepted = uniforms.log() < Probabilistic().log_thresholds(view)
    recovered = _draw_alike(Probabilistic().log_residual(view, 0), seeds, 1, Stream.RECOVER)
    return torch.where(accepted, drafted, recovered)


def _law(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(dim=-1)


def _draw_alike(log_weights: Tensor, seeds: Tensor, index: int, stream: Stream) -> Tensor:
    """The draw of `acceptor.core.race` for rows that all have these weights: [vocab_size]."""
    blocks = core_race._split_into_blocks(log_weights[None])[0]
    num_blocks, block_size = blocks.shape
    where = (torch.full_like(seeds, POSITION), torch.full_like(seeds, index), stream)
    block_ids = torch.arange(num_blocks).expand(len(seeds), -1)
    words = random_words(seeds, *where, Level.BLOCK, block_ids)
    winner = core_race._first_to_arrive(blocks.logsumexp(dim=-1), words)
    first_id = winner * core_race.BLOCK_SIZE
    token_ids = first_id[:, None] + torch.arange(block_size)
    words = random_words(seeds, *where, Level.TOKEN, token_ids)
    return first_id + core_race._first_to_arrive(blocks[winner], words)
