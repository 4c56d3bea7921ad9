"""Requests for toy pairs: one from its fields, any from Hypothesis, and their masks."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from attrs import define, field, fields_dict, frozen
from hypothesis import strategies as st
from torch import Tensor

from acceptor.app.request import GenerationRequest
from acceptor.core import Recipe, SamplingParams, pack_allowed
from kit.toy_pair import VOCAB_SIZE


@define(eq=False)
class ByLast:
    """After t come those v for which t + 2 v is no multiple of 3; after a dead end, none."""

    emitted: list[int] = field(factory=list)
    dead_end: int = -1
    vocab_size: int = VOCAB_SIZE

    def fill(self, masks: Tensor, draft_token_ids: Sequence[int]) -> None:
        known = [*self.emitted, *draft_token_ids]
        for row, mask in enumerate(masks):
            last = ([0, *known])[len(self.emitted) + row]
            mask.copy_(pack_allowed(self.allowed(last)[None])[0])

    def allowed(self, last: int) -> Tensor:
        return ((last + 2 * torch.arange(self.vocab_size)) % 3 > 0) & (last != self.dead_end)

    def accept(self, token_id: int) -> None:
        assert self.allowed(self.emitted[-1] if self.emitted else 0)[token_id]
        self.emitted.append(token_id)


@frozen(eq=False)
class Failing:
    """Masks whose maker, or one of whose methods, raises."""

    place: str
    error: BaseException

    def __call__(self) -> Self:
        return self._reach("new_masks")

    def fill(self, masks: Tensor, _: Sequence[int]) -> None:
        masks.fill_(-1)
        self._reach("fill")

    def accept(self, _: int) -> None:
        self._reach("accept")

    def _reach(self, place: str) -> Self:
        if place == self.place:
            # Else each time would add a frame to it.
            raise self.error.with_traceback(None)
        return self


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
