"""What a request may ask for, and what it is told when it may not."""

import math
from typing import Any

import numpy as np
import pytest

from acceptor.core import InvalidInputError, LogprobsMode, Recipe, SamplingParams
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
    # float32 would make 0 of these, which means greedy or off.
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
    assert params == SamplingParams(
        temperature=0.5, top_k=7, seed=9, logprobs=2, logit_bias={3: 1.0}
    )
    assert {type(params.top_k), type(params.seed), type(params.logit_bias[0][0])} == {int}
    fraction: Any = np.float64(7)
    with pytest.raises(InvalidInputError, match="top_k"):
        SamplingParams(top_k=fraction)


def test_a_recipe_has_filters_iff_one_can_cut() -> None:
    for recipe in (params.draft_recipe for params in MIXES):
        cuts = recipe.min_p > 0 or recipe.top_k > 0 or recipe.top_p < 1
        assert recipe.is_greedy == (recipe.temperature == 0)
        assert recipe.has_filters == (cuts and not recipe.is_greedy)
    off = Recipe(top_k=-1)
    assert not off.has_filters


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
