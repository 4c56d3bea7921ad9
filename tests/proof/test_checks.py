"""The proof's checks by name: each holds for the code as it is, and fails for a planted bug."""

import pytest
from attrs import evolve

from acceptor.core import Policy, RelaxedTopN, Typical
from kit.bugs import Bug
from kit.decode_law import random_model
from kit.proof.cases import DRAFTERS, POLICIES, Pair
from kit.proof.checks import CAUGHT, CHECKS, EXACT_LAWS, HONEST_LOSSES, Check, evidence_of
from kit.proof.exact import EXACT, law_error
from kit.proof.reported import later_losses

# FLy accepts by what follows, so what it accepted tells of the tokens behind.
BY_MEMBERSHIP = [p for p in POLICIES if isinstance(p, Typical | RelaxedTopN)]


def by_name(checks: tuple[Check, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.name)


@by_name(EXACT_LAWS)
def test_a_lossless_law_is_exact(check: Check) -> None:
    assert check.measure().passed


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.lossless], ids=lambda p: p.name)
def test_a_draft_with_more_ids_than_the_target_draws_from_the_shared_ones(policy: Policy) -> None:
    wide = random_model(5, seed=12)
    setup = evolve(DRAFTERS["draft model"], policy=policy, draft=lambda text: wide(text)[:3])
    error = law_error(setup, 2)
    assert max(error.joint, error.conditional) <= EXACT


@by_name(HONEST_LOSSES)
def test_a_lossy_policy_reports_what_it_does(check: Check) -> None:
    found = check.measure()
    assert found.passed
    assert found.parts["enumerated"] > 1e-3


@pytest.mark.parametrize("drafter", ["draft model", "other recipe", "mapped"])
@pytest.mark.parametrize("policy", BY_MEMBERSHIP, ids=lambda policy: policy.name)
def test_the_report_holds_behind_accepted_drafts(policy: Policy, drafter: str) -> None:
    losses = later_losses(Pair(policy, drafter).setup)
    assert max(abs(loss.enumerated - loss.reported) for loss in losses.values()) <= EXACT
    assert max(loss.enumerated for loss in losses.values()) > 1e-3


@by_name(tuple(check for check in CHECKS.values() if check.name.startswith("edge")))
def test_rare_numbers_ties_and_slots(check: Check) -> None:
    assert check.measure().passed


BEHIND_THE_FIRST_TOKEN = {
    "noise keyed without the draft index",
    "block drafts with the target's noise",
    "one acceptance uniform for the whole draft",
    "bonus token without filters",
    "penalties forget the draft",
}
"""A suite that looks at first tokens alone would pass them."""


@pytest.mark.parametrize("bug", CAUGHT, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    found = evidence_of(bug)
    # Far from the limit, so that rounding could not have done it.
    assert found.value > 1e6 * found.limit
    if bug.name in BEHIND_THE_FIRST_TOKEN:
        assert found.parts["first"] < 1e-12
        assert found.parts["conditional"] > 1e-3


def test_all_bugs_behind_the_first_token_are_among_them() -> None:
    assert {bug.name for bug in CAUGHT} > BEHIND_THE_FIRST_TOKEN
