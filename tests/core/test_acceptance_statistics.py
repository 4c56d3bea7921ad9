"""The figures add up for any drafts in any order."""

from hypothesis import given
from hypothesis import strategies as st

from acceptor.core import AcceptanceStatistics

drafts = st.integers(0, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(st.lists(drafts, max_size=20))
def test_the_figures_add_up(history: list[tuple[int, int]]) -> None:
    statistics = AcceptanceStatistics()
    for draft in history:
        statistics.observe(*draft)
    real = [draft for draft in history if draft[0] > 0]
    drafted, accepted = sum(n for n, _ in real), sum(count for _, count in real)
    assert (statistics.num_drafts, statistics.num_draft_tokens) == (len(real), drafted)
    assert statistics.num_accepted_tokens == accepted
    # Before the first draft all figures are defined.
    assert statistics.acceptance_rate == accepted / max(drafted, 1)
    assert statistics.acceptance_length == 1 + accepted / max(len(real), 1)
    assert statistics.acceptance_rate_per_pos == [
        sum(count > place for _, count in real) / len(real)
        for place in range(max((n for n, _ in real), default=0))
    ]
