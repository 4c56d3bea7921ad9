"""The reference backend conforms; the record in docs/data says it at length."""

import pytest
import torch

from acceptor.backends.conformance import cases, policies, run_chunk, run_corners
from acceptor.backends.conformance.strategies import POLICIES, cases_of, form
from acceptor.backends.reference import ReferenceSampler

CPU = torch.device("cpu")


@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_reference_agrees_with_the_oracle(policy: str) -> None:
    strategy = cases(policies([policy]), largest_vocabulary=8200)
    tally = run_chunk(ReferenceSampler(), CPU, 0, 25, strategy)
    assert tally.num_batches == 25
    assert tally.failures == []
    assert tally.is_conformant


def test_the_reference_agrees_in_every_corner() -> None:
    tally = run_corners(ReferenceSampler(), CPU)
    assert tally.failures == []
    assert tally.num_batches > 50


@pytest.mark.parametrize("number", range(0, 48, 5))
def test_the_reference_agrees_in_batches_of_a_form(number: int) -> None:
    strategy = cases_of(form(number, [*POLICIES], 5001))
    tally = run_chunk(ReferenceSampler(), CPU, number, 4, strategy)
    assert tally.num_batches == 4
    assert tally.failures == []
