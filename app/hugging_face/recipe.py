"""Turns the logits processors of a call into `SamplingParams`, where these express the same.

The sampler takes over the end of the list, from a repetition penalty or a temperature on. All
processors before that run unchanged; so do all of them if another kind is last.
"""

import math
from collections.abc import Sequence
from typing import Any

from attrs import evolve, fields_dict, frozen
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ...core import Recipe, SamplingParams

_KNOWN: dict[type, tuple[int, str, str]] = {
    RepetitionPenaltyLogitsProcessor: (0, "repetition_penalty", "penalty"),
    TemperatureLogitsWarper: (1, "temperature", "temperature"),
    MinPLogitsWarper: (2, "min_p", "min_p"),
    TopKLogitsWarper: (2, "top_k", "top_k"),
    TopPLogitsWarper: (3, "top_p", "top_p"),
}
"""Type -> its turn in `SamplingParams`, its field there and its attribute.

Min-p and top-k cut by rank, each the same before and after the other.
"""
_LAST = 3


@frozen(eq=False, kw_only=True)
class LogitsRecipe:
    """How the logits of a call become the law that tokens follow.

    Attributes:
        processors: those that run before verification, on every position of a draft.
        mapped: those that the sampler replaces.
        params: sampling parameters without a seed.
    """

    processors: Any
    mapped: Any
    params: SamplingParams

    @classmethod
    def of(
        cls, processors: Sequence[Any], num_padding: Sequence[int], *, do_sample: bool
    ) -> "LogitsRecipe":
        """Divide the processors that `generate` prepared.

        Args:
            processors: as `generate` prepared them.
            num_padding: how many pad tokens each row of the batch has.
            do_sample: whether tokens are drawn; else the temperature is 0.

        Raises:
            InvalidInputError: a value is out of the range of `SamplingParams`.
        """
        first = _first_mapped(processors, num_padding)
        fields = _fields(processors[first:])
        greedy = {} if do_sample else {"temperature": 0.0}
        params = SamplingParams(**fields | greedy)
        if first and do_sample:
            # Drafts that are drawn with the same recipe are accepted more often.
            recipe = {**_fields(processors), **fields}
            wanted = {name: recipe[name] for name in fields_dict(Recipe) if name in recipe}
            params = evolve(params, draft=Recipe(**wanted))
        return cls(
            processors=LogitsProcessorList(processors[:first]),
            mapped=LogitsProcessorList(processors[first:]),
            params=params,
        )


def _first_mapped(processors: Sequence[Any], num_padding: Sequence[int]) -> int:
    """The index from which on the list is in the order of `SamplingParams`."""
    next_turn, seen = _LAST, set[type]()
    for place in reversed(range(len(processors))):
        one = processors[place]
        turn = _KNOWN[type(one)][0] if type(one) in _KNOWN else _LAST + 1
        if turn > next_turn or type(one) in seen or not _is_equivalent(one, num_padding):
            return place + 1
        next_turn = turn
        seen.add(type(one))
    return 0


def _is_equivalent(processor: Any, num_padding: Sequence[int]) -> bool:
    if isinstance(processor, RepetitionPenaltyLogitsProcessor):
        ignored = processor.prompt_ignore_length
        if ignored is None:
            return not any(num_padding)
        return not isinstance(ignored, int) and ignored.tolist() == list(num_padding)
    # Top-k has become the least number of tokens to keep.
    is_top_k = isinstance(processor, TopKLogitsWarper)
    kept = 1 if is_top_k else getattr(processor, "min_tokens_to_keep", 1)
    return kept == 1 and getattr(processor, "filter_value", -math.inf) == -math.inf


def _fields(processors: Sequence[Any]) -> dict[str, Any]:
    known = [(_KNOWN[type(one)], one) for one in processors if type(one) in _KNOWN]
    return {name: getattr(one, attribute) for (_, name, attribute), one in known}
