"""The law through the real noise: chi-square tests that state what they would have noticed.

`test_exact_law` proves the wiring with ideal random numbers; here the real ones go through it.
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
    VerifyBatch,
)
from kit.chi_square import assert_follows, chi_square
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
NEXT = TARGET_TABLE[:-1].double().softmax(-1)
TESTING = [Probabilistic(), Block()]
by_policy = pytest.mark.parametrize("policy", TESTING, ids=lambda policy: policy.name)


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


def decoded(policy: Policy, num_reqs: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first two tokens, and how many were accepted in the first step.

    Two drafts; where the first of them was rejected, a second step drafts its place again.
    """
    seeds = spread_seeds(num_reqs)
    nothing = torch.full((num_reqs,), -1)
    token_ids, num_accepted = step(MODELS, seeds, nothing, torch.zeros_like(seeds), 2, policy)
    first, second = token_ids[:, 0], token_ids[:, 1].clone()
    missing = second < 0
    again, _ = step(
        MODELS, seeds[missing], first[missing], torch.ones_like(seeds)[missing], 2, policy
    )
    second[missing] = again[:, 0]
    return first, second, num_accepted


@by_policy
def test_two_tokens_follow_the_target(policy: Policy) -> None:
    first, second, _ = decoded(policy, 200_000)
    assert_follows(counts(first), FIRST, detects=0.01)
    assert_follows(counts(first, second), (FIRST[:, None] * NEXT).flatten(), detects=0.012)


def test_after_a_rejection_the_next_token_is_independent_of_it() -> None:
    """A rule that stops at the first failure has not looked at what follows."""
    first, second, num_accepted = decoded(Probabilistic(), 200_000)
    recovered = num_accepted == 0
    assert set(first[recovered].tolist()) == {1}
    assert_follows(counts(second[recovered]), NEXT[1], detects=0.02)


@by_policy
def test_many_seeds_at_once_are_what_the_sampler_does(policy: Policy) -> None:
    seeds, nothing = spread_seeds(600), torch.full((600,), -1)
    token_ids, num_accepted = step(MODELS, seeds, nothing, torch.zeros_like(seeds), 2, policy)
    drafts = drafts_of(MODELS[1], seeds, nothing, torch.zeros_like(seeds), 2, policy)
    texts = torch.cat((nothing[:, None], drafts), dim=1)
    batch = VerifyBatch.dense(
        target_logits=TARGET_TABLE[texts],
        draft_token_ids=drafts,
        positions=torch.zeros_like(seeds),
        draft_logits=DRAFT_TABLE[texts[:, :-1]],
    )
    output = SAMPLER.verify(batch, params_of(seeds), policy)
    assert torch.equal(output.token_ids, token_ids)
    assert torch.equal(output.num_accepted.long(), num_accepted)


def test_policies_accept_as_often_as_they_should() -> None:
    p, q = FIRST, DRAFT_TABLE[-1].double().softmax(-1)
    shared = float(torch.minimum(p, q).sum())
    _, _, probabilistic = decoded(Probabilistic(), 100_000)
    _, _, block = decoded(Block(), 100_000)
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


def test_a_biased_law_is_noticed() -> None:
    """The probe of a known bug: expected 10, 60, 30 %, emitted 10.2, 63.0, 26.8 %."""
    biased = torch.tensor([0.102, 0.630, 0.268]) * 100_000
    assert chi_square(biased, FIRST).p_value < 1e-9
