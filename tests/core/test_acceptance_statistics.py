"""The figures add up, whatever was verified in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptor.core import AcceptanceStatistics

drafts = st.integers(0, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
histories = st.lists(drafts, max_size=20)


def observed(history: list[tuple[int, int]]) -> AcceptanceStatistics:
    statistics = AcceptanceStatistics()
    for num_draft_tokens, num_accepted in history:
        statistics.observe(num_draft_tokens, num_accepted)
    return statistics


def test_one_worked_example() -> None:
    statistics = observed([(3, 3), (3, 1), (3, 0), (0, 0), (2, 2)])
    assert (statistics.num_drafts, statistics.num_draft_tokens) == (4, 11)
    assert statistics.num_accepted_tokens == 6
    assert statistics.num_accepted_per_pos == [3, 2, 1]
    assert statistics.acceptance_rate == 6 / 11
    assert statistics.acceptance_length == 1 + 6 / 4
    assert statistics.acceptance_rate_per_pos == [0.75, 0.5, 0.25]


def test_before_the_first_draft_all_figures_are_defined() -> None:
    for statistics in (AcceptanceStatistics(), observed([(0, 0)])):
        assert statistics.num_drafts == 0
        assert statistics.acceptance_rate == 0
        assert statistics.acceptance_length == 1
        assert statistics.acceptance_rate_per_pos == []


@given(histories)
def test_the_figures_add_up(history: list[tuple[int, int]]) -> None:
    statistics = observed(history)
    real = [draft for draft in history if draft[0] > 0]
    assert statistics.num_drafts == len(real)
    assert statistics.num_draft_tokens == sum(n for n, _ in real)
    assert statistics.num_accepted_tokens == sum(statistics.num_accepted_per_pos)
    assert statistics.num_accepted_tokens == sum(accepted for _, accepted in real)
    assert 0 <= statistics.acceptance_rate <= 1
    per_pos = statistics.acceptance_rate_per_pos
    assert list(per_pos) == sorted(per_pos, reverse=True)
    assert len(per_pos) == max((n for n, _ in real), default=0)
    if real:
        # The length is 1 plus the sum of the rates through each place.
        assert statistics.acceptance_length == pytest.approx(1 + sum(per_pos))


@given(histories, histories)
def test_statistics_of_two_runs_add(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    assert observed(first) + observed(second) == observed(first + second)
    assert observed(first) + AcceptanceStatistics() == observed(first)
