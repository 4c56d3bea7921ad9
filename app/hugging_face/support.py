"""Checks a call of `generate`: every field of a `GenerationConfig` is supported or an error."""

from collections.abc import Iterable, Mapping
from typing import Any

from transformers import (
    GenerationConfig,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from ...adapters.error_text import unfit
from ...core import UnavailableError

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
