"""The reference backend conforms; the record in docs/data says it at length."""

import pytest

from acceptor.backends.conformance import Generator
from acceptor.backends.conformance.campaign import Campaign
from acceptor.core import POLICIES


@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_reference_agrees_with_the_oracle(policy: str) -> None:
    campaign = Campaign(("reference",), generator=Generator((policy,), 8200))
    ((_, (tally,)),) = campaign.run([0], 15, with_corners=False)
    assert tally.num_batches == 15
    assert tally.failures == []
    assert tally.is_conformant


def test_the_reference_agrees_in_every_corner() -> None:
    tallies = [tally for _, (tally,) in Campaign(("reference",)).run([], 0)]
    assert [tally.failures for tally in tallies] == [[]] * len(tallies)
    assert sum(tally.num_batches for tally in tallies) > 50


def test_the_reference_agrees_in_batches_of_a_form() -> None:
    campaign = Campaign(
        ("reference",), generator=Generator(largest_vocabulary=5001, num_forms=48), chunk=3
    )
    found = [tally for _, (tally,) in campaign.run(range(0, 48, 5), 30, with_corners=False)]
    assert sum(tally.num_batches for tally in found) == 30
    assert [tally.failures for tally in found] == [[]] * len(found)
