"""Parameters of a request, and those of a batch as tensors: in order and in range."""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from acceptor.core import InvalidInputError, LogprobsMode, Recipe, SamplingParams, SamplingTensors
from kit.batches import every_mix

NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, "1", None, True, [1.0], 10**400]

REFUSED: list[tuple[str, Any]] = [
    *[("temperature", value) for value in (-0.1, *NOT_NUMBERS)],
    *[("min_p", value) for value in (-0.1, 1.1, *NOT_NUMBERS)],
    *[("top_k", value) for value in (-2, 1.0, 2**31, *NOT_NUMBERS)],
    *[("top_p", value) for value in (-0.1, 0, 0.0, 1.0000001, *NOT_NUMBERS)],
]
REFUSED_OF_REQUESTS: list[tuple[str, Any]] = [
    *[("repetition_penalty", value) for value in (0, -1, *NOT_NUMBERS)],
    *[("presence_penalty", value) for value in NOT_NUMBERS],
    *[("frequency_penalty", value) for value in NOT_NUMBERS],
    *[("seed", value) for value in (-1, 2**64, 1.0, "7", True, 10**400)],
    *[("logprobs", value) for value in (-1, 1.0, "7", True, 2**31, 10**400)],
    *[("logprobs_mode", value) for value in ("raw", None, 0)],
    *[("draft", value) for value in ("greedy", 0.0, SamplingParams())],
    *[("logit_bias", value) for value in (5, "ab", [1, 2], {1: 0.0, "x": 0.0})],
    *[("logit_bias", {key: 0.0}) for key in (-1, 1.5, "5", True, 2**63)],
    *[("logit_bias", {3: value}) for value in (math.nan, math.inf, "1", None, 1e39, 10**400)],
    *[("logit_bias", {3: value}) for value in (1.1e9, -1.1e9)],
    *[("repetition_penalty", value) for value in (9e-7, 1.1e6)],
    *[(f"{kind}_penalty", value) for kind in ("presence", "frequency") for value in (-2e6, 2e6)],
    ("temperature", 1.1e6),
    # float32 would round these to 0, which means greedy or off.
    ("temperature", 1e-46),
    ("min_p", 1e-46),
    ("top_p", 1e-46),
]


@pytest.mark.parametrize(("name", "value"), REFUSED + REFUSED_OF_REQUESTS)
def test_a_request_names_the_value_it_refuses(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{name}\b.*: expected .*, got "):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0, "min_p": 0, "top_k": -1, "top_p": 1, "seed": 0, "logprobs": 0},
        {"temperature": 1e6, "min_p": 1, "top_k": 2**31 - 1, "top_p": 1e-30, "seed": 2**64 - 1},
        {"temperature": 2e-38, "top_k": 0, "draft": Recipe(temperature=0)},
        {"repetition_penalty": 1e6, "presence_penalty": -1e6, "frequency_penalty": 1e6},
        {"repetition_penalty": 1e-6, "logit_bias": [(3, 1), (1, 2)]},
        {"logit_bias": {0: -math.inf, 1: -1e9, 2: 1e9}},
    ],
)
def test_the_ends_of_every_range_are_allowed(values: dict[str, Any]) -> None:
    SamplingParams(**values)


MIXES = every_mix(100, 50)


@pytest.mark.parametrize("integer", [np.int64, np.uint8])
def test_numbers_of_numpy_are_numbers(integer: type) -> None:
    given = {"temperature": np.float32(0.5), "top_k": integer(7), "seed": integer(9)}
    params = SamplingParams(**given, logprobs=integer(2), logit_bias={integer(3): integer(1)})
    assert params == SamplingParams(temperature=0.5, top_k=7, seed=9, logprobs=2, logit_bias={3: 1})
    assert {type(params.top_k), type(params.seed), type(params.logit_bias[0][0])} == {int}
    fraction: Any = np.float64(7)
    with pytest.raises(InvalidInputError, match="top_k"):
        SamplingParams(top_k=fraction)


def test_a_recipe_has_filters_iff_one_can_cut() -> None:
    for recipe in (params.draft_recipe for params in MIXES):
        cuts = recipe.min_p > 0 or recipe.top_k > 0 or recipe.top_p < 1
        assert recipe.is_greedy == (recipe.temperature == 0)
        assert recipe.has_filters == (cuts and not recipe.is_greedy)
    assert not Recipe(top_k=-1).has_filters


def test_a_request_without_a_seed_gets_its_own() -> None:
    seeds = {SamplingParams().with_seed().seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(seed is not None and 0 <= seed < 2**64 for seed in seeds)
    assert max(seed.bit_length() for seed in seeds if seed is not None) > 56
    assert SamplingParams(seed=7).with_seed().seed == 7


def test_bias_is_sorted_and_keeps_one_value_per_token() -> None:
    params = SamplingParams(logit_bias={9: 1.0, 2: -1.0})
    assert params.logit_bias == ((2, -1.0), (9, 1.0))
    assert params == SamplingParams(logit_bias=[(9, 1.0), (2, -1.0)])


def test_penalties_are_seen() -> None:
    assert not SamplingParams().has_penalties
    assert SamplingParams(presence_penalty=-0.5).has_penalties
    assert SamplingParams(frequency_penalty=0.5).has_penalties
    assert SamplingParams(repetition_penalty=0.5).has_penalties
    assert SamplingParams(logprobs_mode=LogprobsMode.PROCESSED).logprobs is None


# The first of a batch asks for everything; without it some batches ask for nothing of a kind.
BATCHES = [every_mix(1 + place % 5, 9, seed=place)[1:] for place in range(40)]


def assert_floats(tensors: Any, names: Sequence[str], values: Sequence[Any]) -> None:
    for name in names:
        field = name.removesuffix("_penalty")
        assert getattr(tensors, field).tolist() == as_float32([getattr(v, name) for v in values])


def test_every_request_keeps_its_place() -> None:
    for requests in BATCHES:
        tensors = SamplingTensors.stack(requests)
        assert tensors.num_reqs == len(requests)
        assert [seed % 2**64 for seed in tensors.seeds.tolist()] == [r.seed for r in requests]
        drafts = [request.draft_recipe for request in requests]
        for got, recipes in ((tensors.target, requests), (tensors.draft, drafts)):
            assert_floats(got, ("temperature", "min_p", "top_p"), recipes)
            assert got.top_k.tolist() == [max(r.top_k, 0) for r in recipes]
            sampled = [r for r in recipes if not r.is_greedy]
            assert (got.all_greedy, got.any_greedy) == (not sampled, len(sampled) < len(recipes))
            assert got.any_min_p == any(r.min_p > 0 for r in sampled)
            assert got.any_top_k == any(r.top_k > 0 for r in sampled)
            assert got.any_top_p == any(r.top_p < 1 for r in sampled)
        processed = [r.logprobs_mode is LogprobsMode.PROCESSED for r in requests]
        assert tensors.logprobs_processed.tolist() == processed
        wanted = [r.logprobs for r in requests if r.logprobs is not None]
        assert tensors.num_logprobs == (max(wanted) if wanted else None)


def test_adjustments_are_there_iff_a_request_has_some() -> None:
    for requests in BATCHES:
        tensors = SamplingTensors.stack(requests)
        assert (tensors.penalties is not None) == any(r.has_penalties for r in requests)
        if tensors.penalties is not None:
            names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
            assert_floats(tensors.penalties, names, requests)
        assert (tensors.bias is not None) == any(r.logit_bias for r in requests)
        if tensors.bias is not None:
            rows = zip(tensors.bias.token_ids.tolist(), tensors.bias.values.tolist(), strict=True)
            for (ids, values), request in zip(rows, requests, strict=True):
                entries = [each for each in zip(ids, values, strict=True) if each[0] >= 0]
                expected = [(token_id, *as_float32([v])) for token_id, v in request.logit_bias]
                assert entries == expected


def as_float32(values: list[float]) -> list[float]:
    floats: list[float] = torch.tensor(values, dtype=torch.float32).tolist()
    return floats


def test_the_largest_values_fit() -> None:
    request = SamplingParams(
        seed=2**64 - 1,
        temperature=1e6,
        top_k=2**31 - 1,
        logit_bias={2**63 - 1: 1e9},
        draft=Recipe(temperature=1e-37),
    )
    tensors = SamplingTensors.stack([request])
    assert tensors.seeds.tolist() == [-1]
    assert bool(tensors.target.temperature.isfinite().all())
    assert bool((tensors.draft.temperature > 0).all())


def test_it_is_built_on_the_device_that_is_asked_for() -> None:
    request = SamplingParams(seed=1, presence_penalty=1.0, logit_bias={1: 1.0}, logprobs=1)
    tensors: Any = SamplingTensors.stack([request], device="meta")
    for part in (tensors, tensors.target, tensors.draft, tensors.penalties, tensors.bias):
        for value in attrs.asdict(part, recurse=False).values():
            assert not isinstance(value, torch.Tensor) or value.is_meta


def test_other_numbers_are_refused_by_name() -> None:
    request = SamplingParams(
        seed=1, logit_bias={0: 1.0, 2: 2.0}, repetition_penalty=2.0, presence_penalty=0.5
    )
    tensors = attrs.evolve(SamplingTensors.stack([request] * 3), slot_ids=torch.arange(3))
    parts: list[Any] = [tensors, tensors.target, tensors.draft, tensors.penalties, tensors.bias]
    for part in parts:
        for name, value in attrs.asdict(part, recurse=False).items():
            if isinstance(value, torch.Tensor):
                apart = torch.stack((value, value), -1)[..., 0]
                for wrong in (apart, value.to(torch.int16), value[None], value.tolist()):
                    with pytest.raises(InvalidInputError, match=rf"\b{name}: expected .*, got "):
                        attrs.evolve(part, **{name: wrong})
                for wrong in (value.to("meta"), *([] if name == "slot_ids" else [value[:2]])):
                    with pytest.raises(InvalidInputError, match=r"^[\w.]+: expected .*, got "):
                        attrs.evolve(part, **{name: wrong})
    for name in ("target", "draft", "penalties", "bias"):
        for part in (5, getattr(SamplingTensors.stack([request]), name)):
            with pytest.raises(InvalidInputError, match=rf"^{name}.*: expected .*, got "):
                attrs.evolve(parts[0], **{name: part})


def test_parameters_by_slot_are_those_of_the_slots_requests() -> None:
    for slots in filter(None, BATCHES):
        chosen = [len(slots) - 1, 0, len(slots) - 1]
        kept = attrs.evolve(SamplingTensors.stack(slots), slot_ids=torch.tensor(chosen))
        got, want = kept.by_request(), SamplingTensors.stack([slots[slot] for slot in chosen])
        assert kept.num_reqs == got.num_reqs == 3
        assert got.by_request() is got
        assert_same_values(got, want)


def assert_same_values(got: Any, want: Any) -> None:
    for name, value in attrs.asdict(want, recurse=False).items():
        if attrs.has(type(value)):
            assert_same_values(getattr(got, name), value)
        elif isinstance(value, torch.Tensor):
            # Other slots may need more room for biases.
            wide = getattr(got, name)
            assert torch.equal(wide[..., : value.shape[-1]], value)
