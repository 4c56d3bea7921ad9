"""The proof's checks: each holds for the code as it is, and fails for a planted bug."""

from collections.abc import Callable, Sequence

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.core import Policy, Recipe, RelaxedTopN, SamplingParams, Synthetic, Typical
from kit.bugs import Bug
from kit.bugs_in_batches import OF_LAWS
from kit.decode_law import DecodeSetup, Tokens, random_model
from lab.proof.cases import DRAFTERS, HONEST, LOSSLESS, POLICIES, Pair
from lab.proof.exact import EXACT, error_of_pair, error_under, law_error
from lab.proof.reported import loss_of, losses

PLAIN, SMALL = DRAFTERS["draft model"], DRAFTERS["two ids"]


def by_pair(pairs: Sequence[Pair]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", pairs)


@by_pair(LOSSLESS)
def test_a_lossless_law_is_exact(pair: Pair) -> None:
    assert error_of_pair(pair).worst <= EXACT


def banning(banned: int, model: Callable[[Tokens], Tensor]) -> Callable[[Tokens], Tensor]:
    return lambda text: model(text).index_fill(0, torch.tensor([banned]), -torch.inf)


def in_dtype(dtype: torch.dtype) -> DecodeSetup:
    target, draft = SMALL.target, SMALL.draft
    assert draft is not None
    return evolve(SMALL, target=lambda t: target(t).to(dtype), draft=lambda t: draft(t).to(dtype))


def asking(**params: object) -> DecodeSetup:
    return evolve(PLAIN, params=SamplingParams(seed=1, **params), prompt=(1,))  # type: ignore[arg-type]


WIDE = random_model(5, seed=12)
ODD = {
    "the target as its own draft": evolve(PLAIN, draft=PLAIN.target),
    # A drafter may stop for what it has drafted so far.
    "drafts that end early": evolve(
        SMALL, num_spec_tokens=3, ends_early=lambda text: text[-1:] == (1,)
    ),
    "more ids than the target": evolve(PLAIN, draft=lambda text: WIDE(text)[:3]),
    "three ids of four": evolve(
        PLAIN,
        target=random_model(4, seed=7),
        draft=random_model(3, seed=8),
        draft_to_target=(3, 1, 0),
    ),
    "guesses at random": evolve(PLAIN, draft=None, guess=lambda _: [0.2, 0.5, 0.3]),
    "tokens that a model never gives": evolve(
        PLAIN, target=banning(0, PLAIN.target), draft=banning(2, random_model(3, seed=105))
    ),
    "bfloat16": in_dtype(torch.bfloat16),
    "float16": in_dtype(torch.float16),
    "temperature 0": asking(temperature=0.0, draft=Recipe()),
    "a hotter draft": asking(temperature=0.7, draft=Recipe(temperature=1.8)),
    "filters on the target": asking(min_p=0.2, top_k=2, draft=Recipe()),
    "filters on the draft": asking(draft=Recipe(top_k=1, min_p=0.3)),
    "bias and penalties": asking(
        logit_bias={0: 0.5, 2: -0.7}, repetition_penalty=1.4, frequency_penalty=-0.6, top_p=0.95
    ),
}


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.lossless])
@pytest.mark.parametrize("setup", ODD.values(), ids=ODD)
def test_the_law_of_an_odd_setup_is_exact(setup: DecodeSetup, policy: Policy) -> None:
    assert law_error(evolve(setup, policy=policy), 2).worst <= EXACT


def test_synthetic_acceptance_is_exact_only_at_rate_0() -> None:
    """There what is emitted is the target's own sample."""
    assert law_error(evolve(SMALL, policy=Synthetic((0.5, 0.2))), 3).joint > 0.01
    assert law_error(evolve(SMALL, policy=Synthetic((0.0, 0.0))), 3).joint <= EXACT


@by_pair(HONEST)
def test_a_lossy_policy_reports_what_it_does(pair: Pair) -> None:
    loss = loss_of(pair.setup)
    assert abs(loss.enumerated - loss.reported) <= EXACT
    assert loss.enumerated > 1e-3


# FLy accepts by what follows, so an accepted token reveals something about later ones.
@pytest.mark.parametrize("drafter", ["draft model", "other recipe", "mapped"])
@pytest.mark.parametrize("kind", [Typical, RelaxedTopN])
def test_the_report_holds_behind_accepted_drafts(kind: type, drafter: str) -> None:
    (policy,) = (policy for policy in POLICIES if type(policy) is kind)
    behind = [loss for accepted, loss in losses(Pair(policy, drafter).setup).items() if accepted]
    assert max(abs(loss.enumerated - loss.reported) for loss in behind) <= EXACT
    assert max(loss.enumerated for loss in behind) > 1e-3


BEHIND_THE_FIRST_TOKEN = {"noise keyed without the draft index", "penalties forget the draft"}
BEHIND_THE_FIRST_TOKEN |= {"block drafts with the target's noise", "bonus token without filters"}
BEHIND_THE_FIRST_TOKEN |= {"one acceptance uniform for the whole draft"}
"""Bugs that a test of first tokens alone would miss."""


@pytest.mark.parametrize("bug", OF_LAWS)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    error = error_under(bug)
    # Far from the limit, so that rounding could not have done it.
    assert error.worst > 1e6 * EXACT
    if bug.name in BEHIND_THE_FIRST_TOKEN:
        assert error.first < EXACT
        assert error.conditional > 1e-3


def test_all_bugs_behind_the_first_token_are_among_them() -> None:
    assert {bug.name for bug in OF_LAWS} > BEHIND_THE_FIRST_TOKEN
