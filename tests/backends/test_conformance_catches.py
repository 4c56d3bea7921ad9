"""The conformance kit passes the reference, and finds every planted bug, soon, in both ways."""

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import Findings, Generator, run_case
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.campaign import Campaign
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.run import Check, run_all
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import POLICIES
from kit.bugs import Bug
from kit.bugs_in_batches import ALL_BUGS

REFERENCE = ReferenceSampler()
ONLY_NUMBERS_SHOW = {
    "no variation reported",
    "draft logits scaled in place",
    "processed logprobs are raw",
    "raw logprobs of masked logits",
}
"""These are the oracle's to judge, for each backend."""


@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_reference_agrees_with_the_oracle(policy: str) -> None:
    campaign = Campaign(("reference",), generator=Generator((policy,), 2500))
    (found,) = campaign.found(0, 12)
    assert found.num_batches == 12
    assert found.differences == ()


@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_reference_agrees_where_models_and_drafts_are_broken(policy: str) -> None:
    bad = frozenset(("bad target rows", "bad draft rows", "bad ids"))
    for case in Generator((policy,), 40).cases(1, 20):
        broken = evolve(case, features=case.features | bad)
        assert run_case(broken, REFERENCE, torch.device("cpu")).differences == ()


def test_the_reference_agrees_in_every_corner_and_in_batches_of_forms() -> None:
    forms = Generator(largest_vocabulary=2500, num_forms=48)
    campaign = Campaign(("reference",), generator=forms, chunk=1)
    found = sum((found for _, (found,) in campaign.run(0, 20)), Findings())
    assert found.num_batches > 20 + 80
    assert found.differences == ()


def by(bugs: list[Bug]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bug", bugs)


@by([bug for bug in ALL_BUGS if bug.shown_by == "batches"])
def test_random_batches_show_a_planted_bug(bug: Bug) -> None:
    shown = (
        case for case in bug.batches(300) if run_all(Check(case), [Watched(bug)])[0].unexplained
    )
    for case in shown:
        right, wrong, between = run_all(Check(case), [Watched(REFERENCE), Watched(bug)])
        assert not right.unexplained
        if (wrong.unexplained and between.unexplained) or bug.name in ONLY_NUMBERS_SHOW:
            return
    pytest.fail("not shown")


@by([bug for bug in ALL_BUGS if bug.shown_by not in ("batches", "proof")])
def test_corners_show_what_one_random_word_in_millions_does(bug: Bug) -> None:
    here = [check for name, check in corners() if bug.shown_by in name]
    found = [run_all(check, [Watched(REFERENCE), Watched(bug)]) for check in here]
    seen = [any(some.unexplained for some in of) for of in zip(*found, strict=True)]
    assert seen == [False, True, True]


def test_names_are_of_one_bug_each() -> None:
    assert len({bug.name for bug in ALL_BUGS}) == len(ALL_BUGS)
