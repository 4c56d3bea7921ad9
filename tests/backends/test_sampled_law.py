"""Draws with the real noise, by chi-square tests that state what they would have noticed.

`tests/proof` samples whole runs; these are single draws and what they share.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SampleBatch,
    Strict,
)
from kit.chi_square import assert_follows
from kit.many_seeds import drafts_of, params_of, spread_seeds, step

SAMPLER = load_sampler("reference")
VOCAB_SIZE = 3


def next_logits(table: Tensor, last: Tensor) -> Tensor:
    """A model that knows one token back; the last row is for no token."""
    return table[last]


def random_table(seed: int) -> Tensor:
    return torch.randn(VOCAB_SIZE + 1, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))


TARGET_TABLE, DRAFT_TABLE = random_table(11), random_table(12)
TARGET_TABLE[-1] = torch.tensor([0.1, 0.6, 0.3]).log()
DRAFT_TABLE[-1] = torch.tensor([0.3, 0.3, 0.4]).log()
MODELS = (partial(next_logits, TARGET_TABLE), partial(next_logits, DRAFT_TABLE))
FIRST = TARGET_TABLE[-1].double().softmax(-1)


def draw(seeds: Tensor, position: int, place: int | None) -> Tensor:
    num_reqs = len(seeds)
    batch = SampleBatch(
        logits=TARGET_TABLE[-1].expand(num_reqs, VOCAB_SIZE),
        positions=torch.full((num_reqs,), position),
        draft_index=place,
    )
    return SAMPLER.sample(batch, params_of(seeds)).token_ids


def counts(*columns: Tensor) -> Tensor:
    """How often each combination of tokens occurs."""
    index = torch.zeros_like(columns[0])
    for column in columns:
        index = index * VOCAB_SIZE + column
    return torch.bincount(index, minlength=VOCAB_SIZE ** len(columns))


@pytest.mark.parametrize("place", [None, 1, 4])
def test_plain_and_draft_draws_follow_the_law(place: int | None) -> None:
    assert_follows(counts(draw(spread_seeds(100_000), 17, place)), FIRST, detects=0.014)


def test_draws_of_neighbouring_positions_and_places_are_independent() -> None:
    seeds = spread_seeds(100_000)
    wheres = [(5, None), (6, None), (5, 1), (5, 2), (6, 2)]
    columns = [draw(seeds, position, place) for position, place in wheres]
    both = torch.outer(FIRST, FIRST).flatten()
    for index, first in enumerate(columns):
        for second in columns[:index]:
            assert_follows(counts(first, second), both, detects=0.016)


def test_neighbouring_seeds_are_independent() -> None:
    drawn = draw(torch.arange(200_000), 0, None)
    both = torch.outer(FIRST, FIRST).flatten()
    assert_follows(counts(drawn[::2], drawn[1::2]), both, detects=0.016)


def num_accepted(policy: Policy) -> Tensor:
    """How many of two drafts survive, over many seeds."""
    seeds = spread_seeds(100_000)
    nothing = torch.full_like(seeds, -1)
    _, accepted = step(MODELS, seeds, nothing, torch.zeros_like(seeds), 2, policy)
    return accepted


def test_policies_accept_as_often_as_they_should() -> None:
    p, q = FIRST, DRAFT_TABLE[-1].double().softmax(-1)
    shared = float(torch.minimum(p, q).sum())
    probabilistic, block = num_accepted(Probabilistic()), num_accepted(Block())
    survived = int((probabilistic > 0).sum())
    assert_follows([survived, 100_000 - survived], [shared, 1 - shared], detects=0.014)
    assert int(block.sum()) > int(probabilistic.sum())


def test_shared_noise_makes_strict_accept_more() -> None:
    p, q = FIRST, DRAFT_TABLE[-1].double().softmax(-1)
    shared = float(torch.minimum(p, q).sum())
    seeds, nothing = spread_seeds(100_000), torch.full((100_000,), -1)
    own, start = draw(seeds, 0, None), torch.zeros_like(seeds)
    equal = [
        int((drafts_of(MODELS[1], seeds, nothing, start, 1, policy)[:, 0] == own).sum())
        for policy in (Strict(), Strict(coupled=True))
    ]
    chance = float((p * q).sum())
    assert_follows([equal[0], 100_000 - equal[0]], [chance, 1 - chance], detects=0.014)
    # At least (1 - TV) / (1 + TV), at most 1 - TV.
    assert shared / (2 - shared) < equal[1] / 100_000 <= shared + 0.01
