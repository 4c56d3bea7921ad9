"""The acceptance of the lossless policies on the bundled pair, and the table that tells it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab.acceptance_table import LOSSLESS, PROMPTS, as_markdown, measure_acceptance

DATA = Path(__file__).parents[2] / "docs" / "data"


@pytest.mark.slow
def test_policies_accept_in_their_order() -> None:
    rates = [
        measure_acceptance(name, 1.0, 4, PROMPTS[::2], max_tokens=8)["acceptance_rate"]
        for name in LOSSLESS
    ]
    assert rates == sorted(rates)
    strict, coupled, probabilistic, _ = rates
    assert strict + 0.05 <= probabilistic
    assert strict < coupled < probabilistic


def test_the_documented_order_holds_everywhere_and_the_table_shows_it() -> None:
    rows: list[dict[str, Any]] = json.loads((DATA / "acceptance.json").read_text())["rows"]
    for setting in {(row["temperature"], row["num_spec_tokens"]) for row in rows}:
        rates = {
            row["policy"]: row["acceptance_rate"]
            for row in rows
            if (row["temperature"], row["num_spec_tokens"]) == setting
        }
        assert all(rates[less] < rates[more] for less, more in pairwise(LOSSLESS))
    assert (DATA / "acceptance.md").read_text() == as_markdown(rows)
