"""What whole decode runs emit, enumerated exactly, is the target's law; what is not exact, is seen.

Several steps are run, so that positions are drafted, tested and rejected twice.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends.reference import draw as reference_draw
from acceptor.core import (
    Block,
    DraftView,
    Policy,
    Probabilistic,
    Recipe,
    SamplingParams,
    Stream,
    Strict,
    Synthetic,
)
from kit.decode_law import DecodeSetup, Law, Tokens, emitted_law, random_model
from kit.oracle import Floats, sequence_law

EXACT = 1e-12
LOSSLESS = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
by_name = pytest.mark.parametrize("policy", LOSSLESS, ids=lambda policy: policy.name)

TARGET = random_model(3, seed=5)
DRAFT = random_model(3, seed=105)


def expected_law(setup: DecodeSetup, num_tokens: int) -> Law:
    def model(tokens: Tokens) -> Floats:
        return setup.target(tokens).double().numpy()

    return sequence_law(model, setup.params, num_tokens, setup.prompt)


def error_of(setup: DecodeSetup, num_tokens: int = 3) -> float:
    """The largest difference of any sequence's probability."""
    emitted, expected = emitted_law(setup, num_tokens), expected_law(setup, num_tokens)
    assert sum(emitted.values()) == pytest.approx(1, abs=EXACT)
    sequences = emitted.keys() | expected.keys()
    return max(abs(emitted.get(s, 0.0) - expected.get(s, 0.0)) for s in sequences)


@by_name
def test_a_draft_model_leaves_the_law_alone(policy: Policy) -> None:
    setup = DecodeSetup(target=TARGET, draft=DRAFT, policy=policy, num_spec_tokens=2)
    assert error_of(setup) <= EXACT


@by_name
def test_many_short_steps(policy: Policy) -> None:
    target, draft = random_model(2, seed=3), random_model(2, seed=4)
    setup = DecodeSetup(target=target, draft=draft, policy=policy, num_spec_tokens=2)
    assert error_of(setup, num_tokens=4) <= EXACT


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


@by_name
@pytest.mark.parametrize("params", RECIPES.values(), ids=RECIPES)
def test_every_recipe_keeps_its_law(policy: Policy, params: SamplingParams) -> None:
    vocab_size = 4 if policy in (Probabilistic(), Block()) else 3
    setup = DecodeSetup(
        target=random_model(vocab_size, seed=5),
        draft=random_model(vocab_size, seed=6),
        policy=policy,
        params=params,
        num_spec_tokens=2,
        prompt=(1,),
    )
    assert error_of(setup, num_tokens=2) <= EXACT


@by_name
@pytest.mark.parametrize(
    "draft_to_target", [None, (2, 0), (3, 1, 0)], ids=["same ids", "mapped", "three mapped"]
)
def test_a_smaller_draft_vocabulary_loses_nothing(
    policy: Policy, draft_to_target: Tokens | None
) -> None:
    setup = DecodeSetup(
        target=random_model(4, seed=7),
        draft=random_model(2 if draft_to_target is None else len(draft_to_target), seed=8),
        draft_to_target=draft_to_target,
        policy=policy,
        num_spec_tokens=2,
    )
    assert error_of(setup, num_tokens=2) <= EXACT


GUESSES: dict[str, Callable[[Tokens], list[float]]] = {
    "always the same": lambda _: [0.0, 1.0, 0.0],
    "an n-gram": lambda text: np.eye(3)[(sum(text) + 1) % 3].tolist(),
    "at random": lambda _: [0.2, 0.5, 0.3],
}


@by_name
@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
def test_drafts_without_probabilities_leave_the_law_alone(
    policy: Policy, guess: Callable[[Tokens], list[float]]
) -> None:
    setup = DecodeSetup(target=TARGET, guess=guess, policy=policy, num_spec_tokens=2)
    assert error_of(setup, num_tokens=2) <= EXACT


@by_name
def test_drafts_that_end_early_leave_the_law_alone(policy: Policy) -> None:
    """A drafter may stop for what it has drafted so far."""
    setup = DecodeSetup(
        target=TARGET,
        draft=DRAFT,
        policy=policy,
        num_spec_tokens=3,
        ends_early=lambda text: text[-1:] == (1,),
    )
    assert error_of(setup) <= EXACT


@by_name
def test_a_draft_that_is_the_target_leaves_the_law_alone(policy: Policy) -> None:
    setup = DecodeSetup(target=TARGET, draft=TARGET, policy=policy, num_spec_tokens=2)
    assert error_of(setup, num_tokens=2) <= EXACT


@by_name
def test_tokens_that_a_model_never_gives(policy: Policy) -> None:
    def banning(banned: int, model: Callable[[Tokens], Tensor]) -> Callable[[Tokens], Tensor]:
        return lambda text: model(text).index_fill(0, torch.tensor([banned]), -torch.inf)

    setup = DecodeSetup(
        target=banning(0, TARGET), draft=banning(2, DRAFT), policy=policy, num_spec_tokens=2
    )
    assert error_of(setup) <= EXACT


@by_name
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_taken_at_their_word(policy: Policy, dtype: torch.dtype) -> None:
    setup = DecodeSetup(
        target=lambda text: TARGET(text).to(dtype),
        draft=lambda text: DRAFT(text).to(dtype),
        policy=policy,
        num_spec_tokens=2,
    )
    assert error_of(setup, num_tokens=2) <= EXACT


@by_name
def test_a_greedy_request_emits_the_argmax(policy: Policy) -> None:
    params = SamplingParams(seed=1, temperature=0.0, draft=Recipe())
    setup = DecodeSetup(target=TARGET, draft=DRAFT, policy=policy, params=params, num_spec_tokens=2)
    assert emitted_law(setup, 3).keys() == expected_law(setup, 3).keys()
    assert error_of(setup) <= EXACT


# What follows must be noticed.


def test_synthetic_acceptance_is_noticed() -> None:
    setup = DecodeSetup(target=TARGET, draft=DRAFT, policy=Synthetic((0.5, 0.2)), num_spec_tokens=2)
    assert error_of(setup) > 0.01


def test_no_synthetic_acceptance_is_exact() -> None:
    """At rate 0 what is emitted is the target's own sample."""
    setup = DecodeSetup(target=TARGET, draft=DRAFT, policy=Synthetic((0.0, 0.0)), num_spec_tokens=2)
    assert error_of(setup) <= EXACT


@frozen
class RecoversFromTarget(Probabilistic):
    """The residual is p itself."""

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        return view.target_log_probs[row]


@frozen
class RecoversAsIfOneHot(Probabilistic):
    """Accepts by p / q and recovers from p without the draft token."""

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        return view.target_log_probs[row].index_fill(0, view.draft_token_ids[row], -torch.inf)


@frozen
class SharesTheTargetsNoise(Block):
    """Drafts with the TARGET stream, though acceptance looks at p and q."""

    draft_stream = Stream.TARGET


@frozen
class StopsAtTheFirstFailure(Block):
    rule = Probabilistic.rule


@pytest.mark.parametrize(
    "policy",
    [
        RecoversFromTarget(),
        RecoversAsIfOneHot(),
        StopsAtTheFirstFailure(),
        SharesTheTargetsNoise(),
    ],
    ids=repr,
)
def test_a_wrong_policy_is_noticed(policy: Policy) -> None:
    setup = DecodeSetup(target=TARGET, draft=DRAFT, policy=policy, num_spec_tokens=2)
    assert error_of(setup) > 1e-3


def test_raw_draft_logits_with_processed_drafts_are_noticed() -> None:
    """The draft model's logits are stored without the sharpening they were drawn with."""
    honest = DecodeSetup(target=TARGET, draft=DRAFT, policy=Probabilistic(), num_spec_tokens=2)
    drawn_with = evolve(honest, draft=lambda text: 2 * DRAFT(text))
    assert error_of(honest) <= EXACT
    assert error_of(evolve(honest, draft=honest.draft, guess=guess_of(drawn_with))) > 1e-3


def guess_of(setup: DecodeSetup) -> Callable[[Tokens], list[float]]:
    """Drafts that are drawn with a model's probabilities outside the sampler."""
    draft = setup.draft
    assert draft is not None
    return lambda text: draft(text).double().softmax(-1).tolist()


class WithOneStream:
    """Streams as the draws know them, but recovered tokens use the noise of something else."""

    def __init__(self, recover: Stream) -> None:
        self.RECOVER = recover
        self.TARGET = Stream.TARGET
        self.ACCEPT = Stream.ACCEPT


# What is recovered here has two candidates, so that its noise matters.
PROBE = DecodeSetup(
    target=lambda _: torch.tensor([0.5, 0.3, 0.2]).log(),
    draft=lambda _: torch.tensor([0.2, 0.1, 0.7]).log(),
    policy=Probabilistic(),
    num_spec_tokens=1,
)


def test_the_probe_itself_is_exact() -> None:
    assert error_of(PROBE, num_tokens=1) <= EXACT


def test_recovering_with_the_draft_s_noise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_draw, "Stream", WithOneStream(Stream.DRAFT))
    assert error_of(PROBE, num_tokens=1) > 0.01


def test_recovering_with_the_acceptance_s_noise_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference_draw, "Stream", WithOneStream(Stream.ACCEPT))
    assert error_of(PROBE, num_tokens=1) > 0.01


def test_noise_without_the_draft_index_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block verification has looked at later positions, which are drafted again."""
    keys = reference_draw.Draws._keys

    def without_index(self: object, first_row: int, num_rows: int) -> tuple[Tensor, ...]:
        seeds, positions, indices = keys(self, first_row, num_rows)  # type: ignore[arg-type]
        return seeds, positions, torch.ones_like(indices)

    monkeypatch.setattr(reference_draw.Draws, "_keys", without_index)
    setup = DecodeSetup(target=TARGET, draft=DRAFT, policy=Block(), num_spec_tokens=2)
    assert error_of(setup) > 1e-4
