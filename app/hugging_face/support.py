"""Reads a call of `generate`: every field of a `GenerationConfig` is supported or an error.

Logits processors become `SamplingParams`, where these express the same. The sampler takes over the
end of the list, from a repetition penalty or a temperature on. All processors before that run
unchanged; so do all of them if another kind is last.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, fields_dict, frozen
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from ...adapters.error_text import unfit
from ...core import Recipe, SamplingParams, UnavailableError

SERVED = frozenset(
    {
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "do_sample",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
        "eos_token_id",
        "epsilon_cutoff",
        "eta_cutoff",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "max_length",
        "max_new_tokens",
        "max_time",
        "min_length",
        "min_new_tokens",
        "min_p",
        "no_repeat_ngram_size",
        "num_return_sequences",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "remove_invalid_values",
        "renormalize_logits",
        "repetition_penalty",
        "return_dict_in_generate",
        "sequence_bias",
        "stop_strings",
        "suppress_tokens",
        "temperature",
        "top_h",
        "top_k",
        "top_p",
        "typical_p",
        "watermarking_config",
    }
)
"""Fields that are read here, or by transformers, which turns them into processors or criteria."""

WITHOUT_EFFECT = frozenset(
    {
        "assistant_confidence_threshold",
        "assistant_lookbehind",
        "cache_config",
        "compile_config",
        "continuous_batching_config",
        "decoder_start_token_id",
        "disable_compile",
        "early_stopping",
        "length_penalty",
        "low_memory",
        "max_cache_len",
        "max_matching_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "prefill_chunk_size",
        "target_lookbehind",
        "transformers_version",
        "use_cache",
    }
)
"""Fields that choose no token: caches, speed, and details of unsupported ways to decode."""

REFUSED: Mapping[str, tuple[Any, ...]] = {
    "assistant_early_exit": (None,),
    "assistant_ensemble_weight": (None,),
    "cache_implementation": (None, "dynamic"),
    "constraints": (None,),
    "diversity_penalty": (None, 0),
    "dola_layers": (None,),
    "force_words_ids": (None,),
    "guidance_scale": (None, 1),
    "is_assistant": (None, False),
    "num_beam_groups": (None, 1),
    "num_beams": (None, 1),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
    "penalty_alpha": (None, 0),
    "prompt_lookup_num_tokens": (None,),
    "speculation_type": (None,),
    "token_healing": (None, False),
    "use_mtp": (None, False),
}
"""Field -> the values that are supported."""

STATEFUL = (SynthIDTextWatermarkLogitsProcessor, UnbatchedClassifierFreeGuidanceLogitsProcessor)
"""Processors that must see every token once and in order, which drafts make impossible."""

INPUTS = frozenset(
    {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep"}
)
"""What `generate` passes on with the ids."""


def check_config(config: GenerationConfig) -> None:
    """Check that every field is supported.

    Raises:
        UnavailableError: a field is not.
    """
    known, served = vars(GenerationConfig()), SERVED | WITHOUT_EFFECT
    for name, value in vars(config).items():
        # Entries that transformers does not know change nothing there either.
        if name.startswith("_") or name in served or name not in known:
            continue
        neutral = REFUSED.get(name, (None,))
        if value not in neutral:
            wanted = f"{' or '.join(map(str, neutral))} with acceptor"
            raise unfit(name, wanted, repr(value), UnavailableError)


def check_call(processors: Iterable[Any], inputs: Mapping[str, Any]) -> None:
    """Check that nothing depends on more than the ids, their padding and the scores.

    Raises:
        UnavailableError: one of transformers' processors does, or the model has other inputs, or a
            filled cache is passed.
    """
    for processor in processors:
        if isinstance(processor, STATEFUL):
            got, expected = f"a {type(processor).__name__}", "functions of ids and scores"
            raise unfit("logits_processor", expected, got, UnavailableError)
    for name, value in inputs.items():
        if name not in INPUTS and value is not None:
            got = f"a {type(value).__name__}"
            raise unfit(name, "None with acceptor", got, UnavailableError)
    # A cache that `generate` made itself is empty, and stays empty.
    if getattr(inputs.get("past_key_values"), "_is_user_defined", False):
        raise UnavailableError("past_key_values: expected None with acceptor, got a cache")


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
