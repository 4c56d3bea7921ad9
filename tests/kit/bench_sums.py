"""Checks that the figures of a benchmark add up."""

import pytest

from acceptor.app.bench.figures import Figures


def assert_figures_add_up(figures: Figures) -> None:
    acceptance = figures.acceptance
    accepted = acceptance.num_accepted_tokens
    assert accepted + acceptance.num_final_tokens == figures.num_output_tokens
    summed = sum(acceptance.acceptance_rate_per_pos) * acceptance.num_drafts
    assert summed == pytest.approx(accepted)
    assert acceptance.acceptance_rate * acceptance.num_draft_tokens == pytest.approx(accepted)
