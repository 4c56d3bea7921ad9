"""The reference's decode step and draws for millions of requests: equal ones are decided together.

Tests hold both against the sampler, token for token. Parameters must be plain.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from acceptor.backends.reference import draw
from acceptor.core import DraftView, Policy, Probabilistic, Stream
from acceptor.core import race as core_race
from acceptor.core.randomness import Level
from kit import many_seeds
from kit.proof.runs import Chain


def grouped_step(
    chain: Chain, policy: Policy, seeds: Tensor, positions: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """A `kit.proof.runs.Step` for chains with plain parameters."""
    models = _rows_of(chain.target), _rows_of(chain.draft)
    return many_seeds.step(models, seeds, before, positions, chain.num_spec_tokens, policy)


def _rows_of(table: Tensor) -> many_seeds.NextLogits:
    """On the host for tokens that lie there."""
    on_host = table.cpu()
    return lambda last: (on_host if last.device.type == "cpu" else table)[last]


def grouped_sample(logits: Tensor, seeds: Tensor, position: int, place: int | None) -> Tensor:
    """`Sampler.sample` for requests that share a row: [num_reqs] tokens.

    Args:
        logits: [vocab_size].
        seeds: [num_reqs].
        position: of all.
        place: 1-based place in the draft, None for the target's own draw.
    """
    stream = Stream.TARGET if place is None else Stream.DRAFT
    return _draw_alike(_law(logits), seeds, position, place or 0, stream)


def grouped_first_tokens(target: Tensor, draft: Tensor, seeds: Tensor, position: int) -> Tensor:
    """The first token of each request that drafts one and verifies it: [num_reqs]."""
    log_p, log_q = _law(target), _law(draft)
    drafted = grouped_sample(draft, seeds, position, 1)
    # As if all requests' drafts were one: its tokens are tested one by one, each on its row.
    view = DraftView(drafted, log_p.expand(len(seeds) + 1, -1), log_q.expand(len(seeds), -1), None)
    positions = torch.full_like(seeds, position)
    uniforms = draw.acceptance_uniforms(seeds, positions, torch.ones_like(seeds))
    accepted = uniforms.log() < Probabilistic().log_thresholds(view)
    residual = Probabilistic().log_residual(view, 0)
    recovered = _draw_alike(residual, seeds, position, 1, Stream.RECOVER)
    return torch.where(accepted, drafted, recovered)


def _law(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(dim=-1)


def _draw_alike(
    log_weights: Tensor, seeds: Tensor, position: int, draft_index: int, stream: Stream
) -> Tensor:
    """The draw of `acceptor.core.race` for rows that all have these weights: [vocab_size]."""
    # Looked up by name, so that what the proof puts in its place is used.
    source: Callable[..., Tensor] = vars(draw)["random_words"]
    blocks = core_race._split_into_blocks(log_weights[None])[0]
    num_blocks, block_size = blocks.shape
    where = (torch.full_like(seeds, position), torch.full_like(seeds, draft_index), stream)
    block_ids = torch.arange(num_blocks, device=seeds.device).expand(len(seeds), -1)
    words = source(seeds, *where, Level.BLOCK, block_ids)
    winner = core_race._first_to_arrive(blocks.logsumexp(dim=-1), words)
    first_id = winner * core_race.BLOCK_SIZE
    token_ids = first_id[:, None] + torch.arange(block_size, device=seeds.device)
    words = source(seeds, *where, Level.TOKEN, token_ids)
    return first_id + core_race._first_to_arrive(blocks[winner], words)
