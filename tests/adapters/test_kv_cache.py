import pytest
import torch

from acceptor.adapters import KVCache
from acceptor.core import InvalidInputError


@pytest.fixture
def cache() -> KVCache:
    return KVCache.allocate(
        num_layers=2,
        num_slots=3,
        max_len=5,
        num_kv_heads=2,
        head_dim=4,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def test_writing_again_replaces(cache: KVCache) -> None:
    layer = cache.layers[1]
    slot_ids, positions = torch.tensor([2, 0]), torch.tensor([[3, 4], [0, 1]])
    rows = cache.rows(slot_ids, positions)
    assert rows.tolist() == [13, 14, 0, 1]
    for value in (7.0, 8.0):
        keys = torch.full((4, 2, 4), value)
        layer.rows[rows] = torch.cat((keys, -keys), 1)
    keys, values = layer.read(slice(3), 5)
    assert keys.shape == (3, 2, 5, 4)
    written = torch.zeros(3, 5, dtype=torch.bool)
    written[slot_ids[:, None], positions] = True
    assert torch.equal(keys[:, 0, :, 0], written * 8.0)
    assert torch.equal(values, -keys)
    assert not cache.layers[0].keys.any()


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


@pytest.mark.parametrize("name", ["num_slots", "max_len"])
def test_an_empty_cache_is_refused(name: str) -> None:
    sizes = {"num_slots": 2, "max_len": 2} | {name: 0}
    with pytest.raises(InvalidInputError, match=name):
        KVCache.allocate(
            num_layers=1,
            num_kv_heads=1,
            head_dim=2,
            dtype=torch.float32,
            device=torch.device("cpu"),
            **sizes,
        )
