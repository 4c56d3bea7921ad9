"""Every query's span of keys is its slot up to its own position."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from acceptor.adapters.spans import FEW_TOKENS, Spans

MAX_LEN = 50


@given(
    slot_ids=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    num_tokens=st.integers(1, FEW_TOKENS + 4),
    data=st.data(),
)
def test_a_query_sees_its_slot_up_to_its_position(
    slot_ids: list[int], num_tokens: int, data: st.DataObject
) -> None:
    starts = [data.draw(st.integers(0, MAX_LEN - num_tokens)) for _ in slot_ids]
    positions = torch.tensor(starts)[:, None] + torch.arange(num_tokens)
    seen = seen_keys(Spans.of(positions, torch.tensor(slot_ids), MAX_LEN))
    expected = [
        (slot * MAX_LEN, position + 1)
        for slot, row in zip(slot_ids, positions.tolist(), strict=True)
        for position in row
    ]
    assert seen == expected


def test_few_tokens_need_not_follow_each_other() -> None:
    positions = torch.tensor([[0, 0], [48, 49], [49, 49]])
    seen = seen_keys(Spans.of(positions, torch.tensor([2, 0, 1]), MAX_LEN))
    assert seen == [(100, 1), (100, 1), (0, 49), (0, 50), (50, 50), (50, 50)]


def seen_keys(spans: Spans) -> list[tuple[int, int]]:
    """For every query the first row of the cache that it sees, and how many."""
    seen = []
    bounds = spans.query_starts.tolist()
    rows = zip(bounds, bounds[1:], spans.key_starts.tolist(), spans.num_keys.tolist(), strict=False)
    for first, end, key_start, num_keys in rows:
        assert end - first <= spans.max_queries
        assert num_keys <= spans.max_keys
        seen += [(key_start, num_keys - (end - 1 - query)) for query in range(first, end)]
    return seen
