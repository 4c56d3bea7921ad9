"""The acceptance of the lossless policies on the bundled pair, and the table that tells it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from lab.acceptance_table import LOSSLESS, PROMPTS, Row, as_markdown, measure_acceptance

DATA = Path(__file__).parents[2] / "docs" / "data"


@pytest.fixture(scope="module")
def documented() -> list[Row]:
    return [Row(**row) for row in json.loads((DATA / "acceptance.json").read_text())["rows"]]


@pytest.mark.slow
def test_policies_accept_in_their_order() -> None:
    rates = [measure_acceptance(name, 1.0, 4, max_tokens=16).acceptance_rate for name in LOSSLESS]
    assert rates == sorted(rates)
    strict, coupled, probabilistic, _ = rates
    assert strict + 0.05 <= probabilistic
    assert strict < coupled < probabilistic


def test_the_documented_order_holds_everywhere(documented: list[Row]) -> None:
    settings = {(row.temperature, row.num_spec_tokens) for row in documented}
    for setting in settings:
        rows = {
            row.policy: row
            for row in documented
            if (row.temperature, row.num_spec_tokens) == setting
        }
        rates = [rows[name].acceptance_rate for name in LOSSLESS]
        assert all(less < more for less, more in pairwise(rates))


def test_the_documented_table_shows_the_data(documented: list[Row]) -> None:
    assert (DATA / "acceptance.md").read_text() == as_markdown(documented)


def test_there_are_enough_prompts_and_none_twice() -> None:
    assert len(set(PROMPTS)) == len(PROMPTS) >= 100
