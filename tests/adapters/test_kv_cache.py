"""The cache of keys and values, and the spans of it that queries see."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acceptor.adapters import KVCache
from acceptor.adapters.attention import FEW_TOKENS, Spans


@pytest.fixture
def cache() -> KVCache:
    return KVCache.allocate(2, (3, 5, 4, 4), torch.float32, torch.device("cpu"))


def test_neighbouring_slots_are_not_copied(cache: KVCache) -> None:
    layer = cache.layers[0]
    keys, values = layer.read(slice(1, 3), 4)
    assert keys.shape == (2, 2, 4, 4)
    assert keys.data_ptr() == layer.keys[1].data_ptr()
    assert values.data_ptr() == layer.values[1].data_ptr()
    gathered, _ = layer.read(torch.tensor([1, 2]), 4)
    assert torch.equal(gathered, keys)


@pytest.mark.parametrize("slots", [[1], [2, 1], [2, 0], [0, 1, 2]])
def test_clearing_slots_leaves_the_others(cache: KVCache, slots: list[int]) -> None:
    for layer in cache.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    cache.clear(slots)
    for layer in cache.layers:
        stays = [slot not in slots for slot in range(3)]
        assert layer.keys.isnan().all((1, 2, 3)).tolist() == stays
        assert not layer.values[slots].any()


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
