"""What whole decode runs emit, enumerated exactly, is the target's law.

Several steps are run, so that positions are drafted, tested and rejected twice. The proof's cases,
and what it must notice, are in `tests/proof`; these are the odder setups.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.core import Block, Policy, Probabilistic, Recipe, SamplingParams, Strict, Synthetic
from kit.decode_law import DecodeSetup, Law, Tokens, emitted_law, random_model
from kit.oracle import Floats, sequence_law

EXACT = 1e-12
LOSSLESS = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
TARGET, DRAFT = random_model(3, seed=5), random_model(3, seed=105)


def expected_law(setup: DecodeSetup, num_tokens: int) -> Law:
    def model(tokens: Tokens) -> Floats:
        return setup.target(tokens).double().numpy()

    return sequence_law(model, setup.params, num_tokens, setup.prompt)


def error_of(setup: DecodeSetup, num_tokens: int) -> float:
    """The largest difference of any sequence's probability."""
    emitted, expected = emitted_law(setup, num_tokens), expected_law(setup, num_tokens)
    assert sum(emitted.values()) == pytest.approx(1, abs=EXACT)
    sequences = emitted.keys() | expected.keys()
    return max(abs(emitted.get(s, 0.0) - expected.get(s, 0.0)) for s in sequences)


def banning(banned: int, model: Callable[[Tokens], Tensor]) -> Callable[[Tokens], Tensor]:
    return lambda text: model(text).index_fill(0, torch.tensor([banned]), -torch.inf)


def in_dtype(dtype: torch.dtype) -> DecodeSetup:
    return evolve(PLAIN, target=lambda t: TARGET(t).to(dtype), draft=lambda t: DRAFT(t).to(dtype))


def mapped(draft_to_target: Tokens | None, draft_vocab_size: int) -> DecodeSetup:
    target, draft = random_model(4, seed=7), random_model(draft_vocab_size, seed=8)
    return evolve(PLAIN, target=target, draft=draft, draft_to_target=draft_to_target)


PLAIN = DecodeSetup(target=TARGET, draft=DRAFT, policy=Strict(), num_spec_tokens=2)
TINY = evolve(PLAIN, target=random_model(2, seed=3), draft=random_model(2, seed=4))
GUESSED = evolve(PLAIN, draft=None)
GREEDY = SamplingParams(seed=1, temperature=0.0, draft=Recipe())
SETUPS: dict[str, tuple[DecodeSetup, int]] = {
    "many short steps": (TINY, 4),
    "a draft that is the target": (evolve(PLAIN, draft=TARGET), 2),
    # A drafter may stop for what it has drafted so far.
    "drafts that end early": (
        evolve(PLAIN, num_spec_tokens=3, ends_early=lambda text: text[-1:] == (1,)),
        2,
    ),
    "a draft's first ids": (mapped(None, 2), 2),
    "a draft's own ids": (mapped((2, 0), 2), 2),
    "three ids of its own": (mapped((3, 1, 0), 3), 2),
    "always the same": (evolve(GUESSED, guess=lambda _: [0.0, 1.0, 0.0]), 2),
    "an n-gram": (evolve(GUESSED, guess=lambda text: np.eye(3)[(sum(text) + 1) % 3].tolist()), 2),
    "at random": (evolve(GUESSED, guess=lambda _: [0.2, 0.5, 0.3]), 2),
    "tokens that a model never gives": (
        evolve(PLAIN, target=banning(0, TARGET), draft=banning(2, DRAFT)),
        3,
    ),
    "bfloat16": (in_dtype(torch.bfloat16), 2),
    "float16": (in_dtype(torch.float16), 2),
    "greedy": (evolve(PLAIN, params=GREEDY), 3),
}


@pytest.mark.parametrize("policy", LOSSLESS, ids=lambda policy: policy.name)
@pytest.mark.parametrize(("setup", "num_tokens"), SETUPS.values(), ids=SETUPS)
def test_every_drafter_leaves_the_law_alone(
    setup: DecodeSetup, num_tokens: int, policy: Policy
) -> None:
    assert error_of(evolve(setup, policy=policy), num_tokens) <= EXACT


SAMPLED = Recipe(temperature=0.6, top_k=3, top_p=0.9)
RECIPES = {
    "a colder draft": SamplingParams(seed=1, draft=Recipe(temperature=0.4)),
    "a hotter draft": SamplingParams(seed=1, temperature=0.7, draft=Recipe(temperature=1.8)),
    "filters on both": SamplingParams(seed=1, temperature=1.3, top_p=0.8, draft=SAMPLED),
    "filters on the target": SamplingParams(seed=1, min_p=0.2, top_k=2, draft=Recipe()),
    "filters on the draft": SamplingParams(seed=1, draft=Recipe(top_k=1, min_p=0.3)),
    "a greedy draft": SamplingParams(seed=1, draft=Recipe(temperature=0)),
    "bias and penalties": SamplingParams(
        seed=1,
        logit_bias={0: 0.5, 2: -0.7},
        repetition_penalty=1.4,
        presence_penalty=0.3,
        frequency_penalty=-0.6,
        top_p=0.95,
    ),
}


@pytest.mark.parametrize("policy", LOSSLESS, ids=lambda policy: policy.name)
@pytest.mark.parametrize("params", RECIPES.values(), ids=RECIPES)
def test_every_recipe_keeps_its_law(policy: Policy, params: SamplingParams) -> None:
    vocab_size = 4 if policy in (Probabilistic(), Block()) else 3
    target, draft = random_model(vocab_size, seed=5), random_model(vocab_size, seed=6)
    setup = evolve(PLAIN, target=target, draft=draft, policy=policy, params=params, prompt=(1,))
    assert error_of(setup, num_tokens=2) <= EXACT


def test_a_greedy_run_has_one_outcome() -> None:
    setup = evolve(PLAIN, params=GREEDY, policy=Probabilistic())
    assert emitted_law(setup, 3).keys() == expected_law(setup, 3).keys()


def test_synthetic_acceptance_is_exact_only_at_rate_0() -> None:
    """There what is emitted is the target's own sample."""
    assert error_of(evolve(TINY, policy=Synthetic((0.5, 0.2))), 3) > 0.01
    assert error_of(evolve(TINY, policy=Synthetic((0.0, 0.0))), 3) <= EXACT
