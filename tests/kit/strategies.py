"""Hypothesis strategies for everything a sampler is given; this module refuses to judge results."""

import math
from typing import Any

from hypothesis import strategies as st

from acceptor.core import LogprobsMode, Recipe, SamplingParams

seeds = st.one_of(st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))

_recipe_values: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([1.0, 0.0, 0.3, 0.7, 1.5]),
    "min_p": st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    "top_k": st.sampled_from([0, -1, 1, 2, 3, 7, 1000]),
    "top_p": st.sampled_from([1.0, 0.95, 0.6, 0.2, 1e-6]),
}


def recipes() -> st.SearchStrategy[Recipe]:
    """Every mix of temperature and filters, greedy and off included."""
    return st.builds(Recipe, **_recipe_values)


def sampling_params(vocab_size: int) -> st.SearchStrategy[SamplingParams]:
    """Every mix of what one request may want; it has a seed."""
    biases = st.one_of(st.sampled_from([-math.inf, 0.5, 2.0]), st.floats(-3, 3, width=32))
    return st.builds(
        SamplingParams,
        **_recipe_values,
        logit_bias=st.dictionaries(st.integers(0, 2 * vocab_size), biases, max_size=2),
        repetition_penalty=st.sampled_from([1.0, 1.0, 0.7, 1.6]),
        presence_penalty=st.sampled_from([0.0, 0.0, -0.5, 0.5]),
        frequency_penalty=st.sampled_from([0.0, 0.0, -0.25, 0.75]),
        seed=seeds,
        logprobs=st.sampled_from([None, None, 0, 1, 3]),
        logprobs_mode=st.sampled_from(LogprobsMode),
        draft=st.one_of(st.none(), recipes()),
    )
