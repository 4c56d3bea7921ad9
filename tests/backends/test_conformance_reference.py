"""The reference backend conforms; the record in docs/data says it at length."""

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import Findings, Generator, run_case
from acceptor.backends.conformance.campaign import Campaign
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import POLICIES


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
        assert run_case(broken, ReferenceSampler(), torch.device("cpu")).differences == ()


def test_the_reference_agrees_in_every_corner_and_in_batches_of_forms() -> None:
    forms = Generator(largest_vocabulary=2500, num_forms=48)
    campaign = Campaign(("reference",), generator=forms, chunk=1)
    found = sum((found for _, (found,) in campaign.run(0, 20)), Findings())
    assert found.num_batches > 20 + 80
    assert found.differences == ()
