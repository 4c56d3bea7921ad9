"""Requests for toy pairs: one by its fields, and any that Hypothesis can think of."""

from typing import Any

from attrs import fields_dict
from hypothesis import strategies as st

from acceptor.app.request import GenerationRequest
from acceptor.core import Recipe, SamplingParams
from kit.toy_masks import ByLast


def ask(*prompt_token_ids: int, seed: int | None = 0, **fields: Any) -> GenerationRequest:
    """A request; its own fields and those of its sampling parameters side by side."""
    names = fields_dict(SamplingParams).keys() & fields.keys()
    params = SamplingParams(seed=seed, **{name: fields.pop(name) for name in names})
    return GenerationRequest(prompt_token_ids=prompt_token_ids, params=params, **fields)


def requests(max_tokens: int) -> st.SearchStrategy[GenerationRequest]:
    """Requests with any parameters that change what is drawn."""
    return st.builds(
        GenerationRequest,
        prompt_token_ids=st.lists(st.integers(0, 12), min_size=1, max_size=9),
        params=PARAMS,
        max_tokens=st.integers(1, max_tokens),
        stop=st.lists(st.text("abcdefghijkl", min_size=1, max_size=3), max_size=2),
        ignore_eos=st.booleans(),
        num_spec_tokens=st.none() | st.integers(0, 5),
        new_masks=st.sampled_from([None, None, ByLast]),
    )


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.4, 1.0, 1.7]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    top_k=st.sampled_from([0, 3]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    logit_bias=st.sampled_from([{}, {1: 2.0, 4: -float("inf")}]),
    draft=st.sampled_from([None, Recipe(temperature=0), Recipe(temperature=0.7, top_k=4)]),
    seed=st.integers(0, 2**64 - 1),
)
