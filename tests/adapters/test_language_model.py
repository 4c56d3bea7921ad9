"""This project's decoder: slots, lengths and its cache."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acceptor.adapters import KVCache, TransformerModel, kv_cache, load_model
from acceptor.adapters.attention import FEW_TOKENS, Spans
from acceptor.adapters.kv_cache import Places
from acceptor.adapters.random_weights import random_model
from acceptor.core import InvalidInputError


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> TransformerModel:
    return load_model(tiny_llama, max_model_len=32)


def ids(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel()).view(shape)


def test_a_request_does_not_see_its_neighbours(model: TransformerModel) -> None:
    positions = torch.arange(4).expand(2, -1)
    alone = model.forward(ids(1, 4), positions[:1], model.new_cache(2, 8), torch.tensor([0])).logits
    cache = model.new_cache(2, 8)
    for layer in cache.layers:
        layer[1].fill_(torch.nan)
    beside = model.forward(ids(1, 4).expand(2, -1), positions, cache, torch.tensor([0, 1])).logits
    torch.testing.assert_close(beside[:1], alone, rtol=1e-5, atol=1e-5)


def test_no_graph_is_recorded(model: TransformerModel) -> None:
    assert not model.forward(ids(1, 1), ids(1, 1), model.new_cache(1, 8)).logits.requires_grad


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": ids(3)}, r"token_ids: expected shape \[any, any\], got \[3\]"),
        ({"token_ids": ids(1, 3).int()}, "token_ids: expected dtype int64, got torch.int32"),
        ({"token_ids": ids(1, 0), "positions": ids(1, 0)}, r"token_ids.shape\[1\]: expected a num"),
        ({"token_ids": ids(0, 3), "positions": ids(0, 3)}, r"token_ids.shape\[0\]: expected a num"),
        ({"token_ids": ids(1, 3) + 58}, r"token_ids: expected values in \[0, 61\), got 59 to 61"),
        ({"token_ids": ids(1, 3) - 2}, r"token_ids: expected values in \[0, 61\), got -1 to 1"),
        ({"positions": ids(1, 2)}, r"positions: expected shape \[1, 3\], got \[1, 2\]"),
        ({"positions": ids(1, 3) + 5}, r"positions: expected values in \[0, 8\), got 6 to 8"),
        ({"slot_ids": ids(2)}, r"slot_ids: expected shape \[1\], got \[2\]"),
        ({"slot_ids": torch.tensor([2])}, r"slot_ids: expected a number in \[0, 1\], got 2"),
        ({"taps": (3,)}, r"taps: expected a number in \[0, 2\], got 3"),
        ({"max_position": 8}, r"max_position: expected a number in \[0, 7\], got 8"),
        (
            {"token_ids": ids(3, 1), "positions": ids(3, 1)},
            r"num_reqs without slot_ids: expected a number in \[1, 2\], got 3",
        ),
    ],
)
def test_a_misfit_is_named(model: TransformerModel, changes: dict[str, Any], message: str) -> None:
    inputs: dict[str, Any] = {"token_ids": ids(1, 3), "positions": ids(1, 3)} | changes
    with pytest.raises(InvalidInputError, match=message):
        model.forward(cache=model.new_cache(2, 8), **inputs)


def test_lengths_beyond_the_model_are_refused(model: TransformerModel, tiny_llama: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"max_len: expected a number in \[1, 32\], got 33"):
        model.new_cache(1, 33)
    with pytest.raises(InvalidInputError, match=r"max_model_len: .*\[1, 64\], got 65"):
        load_model(tiny_llama, max_model_len=65)
    assert load_model(tiny_llama).max_model_len == 64


@pytest.mark.parametrize("max_position", [None, 31])
@pytest.mark.parametrize("slots", [None, [2, 0]])
def test_lengths_of_a_gpu_compute_the_same(
    model: TransformerModel,
    slots: list[int] | None,
    max_position: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = model.new_cache(3, 32)
    monkeypatch.setattr(kv_cache, "rounded_up", lambda length, step, _: -(-length // step) * step)
    rounded = model.new_cache(3, 32)
    assert rounded.max_len > model.max_model_len
    slot_ids = None if slots is None else torch.tensor(slots)
    for start, stop in ((0, 17), (15, 20), (20, 21), (10, 32)):
        positions, token_ids = torch.arange(start, stop).expand(2, -1), ids(2, stop - start) % 61
        given = token_ids, positions
        got = model.forward(*given, rounded, slot_ids, max_position=max_position).logits
        with monkeypatch.context() as patch:
            patch.setattr(kv_cache, "rounded_up", lambda length, *_: length)
            want = model.forward(*given, own, slot_ids).logits
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("max_position", [None, 32])
def test_positions_that_only_rounding_made_are_refused(
    model: TransformerModel, max_position: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache, "rounded_up", lambda length, step, _: -(-length // step) * step)
    cache, position = model.new_cache(1, 32), torch.tensor([[32]])
    with pytest.raises(InvalidInputError, match="position"):
        model.forward(ids(1, 1), position, cache, max_position=max_position)


def test_there_may_be_more_requests_than_positions(model: TransformerModel) -> None:
    num_reqs = model.max_model_len + 3
    token_ids = ids(num_reqs, 1) % 61
    positions = torch.zeros_like(token_ids)
    cache = model.new_cache(num_reqs, 4)
    got = model.forward(token_ids, positions, cache).logits
    want = model.forward(token_ids, positions, cache, torch.arange(num_reqs)).logits
    torch.testing.assert_close(got, want)


def test_random_weights_follow_the_config_and_the_seed(tiny_llama: Path) -> None:
    def logits(seed: int) -> torch.Tensor:
        made = random_model(tiny_llama / "config.json", seed=seed)
        return made.forward(ids(1, 3), torch.arange(3)[None], made.new_cache(1, 8)).logits

    first = logits(1)
    assert first.shape == (1, 3, 61)
    assert first.isfinite().all()
    assert first.std() > 0
    assert torch.equal(logits(1), first)
    assert not torch.equal(logits(2), first)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gpu_computes_the_same(tiny_llama: Path, dtype: torch.dtype) -> None:
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    cpu, gpu = load_model(tiny_llama), load_model(tiny_llama, dtype=dtype, device="cuda")
    caches = cpu.new_cache(3, 40), gpu.new_cache(3, 40)
    for start, stop in ((0, 17), (15, 20), (20, 21), (10, 40)):
        positions = torch.arange(start, stop).expand(2, -1)
        token_ids = ids(2, stop - start) % 61
        for slots in (None, torch.tensor([2, 0])):
            want = cpu.forward(token_ids, positions, caches[0], slots).logits
            on_gpu = None if slots is None else slots.cuda()
            for max_position in (None, stop - 1):
                got = gpu.forward(
                    token_ids.cuda(), positions.cuda(), caches[1], on_gpu, max_position=max_position
                ).logits
                assert (got.cpu().float() - want).abs().max() <= tolerance * want.abs().max()


@pytest.fixture
def cache() -> KVCache:
    return KVCache.allocate([(4, 4)] * 2, 3, 5, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize(
    ("slots", "read"), [([1, 2], slice(1, 3)), ([2], slice(2, 3)), ([2, 1], None), ([0, 2], None)]
)
def test_neighbouring_slots_are_not_copied(slots: list[int], read: slice | None) -> None:
    slot_ids = torch.tensor(slots)
    places = Places(slot_ids[:, None], slot_ids, num_positions=4, max_len=5)
    assert places.slots is slot_ids if read is None else places.slots == read


@pytest.mark.parametrize("slots", [[1], [2, 1], [2, 0], [0, 1, 2]])
def test_clearing_slots_leaves_the_others(cache: KVCache, slots: list[int]) -> None:
    for layer in cache.layers:
        layer.fill_(torch.nan)
    cache.clear(slots)
    for layer in cache.layers:
        stays = [slot not in slots for slot in range(3)]
        assert layer.isnan().all((1, 2, 3)).tolist() == stays
        assert not layer[slots].any()


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
    seen = seen_keys(positions, slot_ids)
    expected = [
        (slot * MAX_LEN, position + 1)
        for slot, row in zip(slot_ids, positions.tolist(), strict=True)
        for position in row
    ]
    assert seen == expected


def test_few_tokens_need_not_follow_each_other() -> None:
    seen = seen_keys(torch.tensor([[0, 0], [48, 49], [49, 49]]), [2, 0, 1])
    assert seen == [(100, 1), (100, 1), (0, 49), (0, 50), (50, 50), (50, 50)]


def seen_keys(positions: torch.Tensor, slot_ids: list[int]) -> list[tuple[int, int]]:
    """For every query the first row of the cache that it sees, and how many."""
    slots = torch.tensor(slot_ids)
    spans, seen = Spans.of(Places(positions, slots, num_positions=MAX_LEN, max_len=MAX_LEN)), []
    bounds = spans.query_starts.tolist()
    rows = zip(bounds, bounds[1:], spans.key_starts.tolist(), spans.num_keys.tolist(), strict=False)
    for first, end, key_start, num_keys in rows:
        assert end - first <= spans.max_queries
        assert num_keys <= spans.max_keys
        seen += [(key_start, num_keys - (end - 1 - query)) for query in range(first, end)]
    return seen
