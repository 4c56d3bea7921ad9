"""Measures how fast `generate` of transformers decodes, to compare the engine with."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)

ASSISTED_TOKENS = 48
FORCED = 7


class OneToken(LogitsProcessor):  # type: ignore[misc]
    """Leaves no choice, so that every draft is accepted: the best case for assisted generation."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002, as its base
        """Scores [num_reqs, vocab_size] with one finite entry each."""
        forced = torch.full_like(scores, -torch.inf)
        forced[:, FORCED] = 0
        return forced


def hugging_face(
    shapes: Sequence[Mapping[str, Any]],
    prompt_len: int,
    num_spec_tokens: int,
    device: torch.device,
) -> dict[str, float]:
    """New tokens a second of one request, assisted by the draft and alone."""
    target, draft = (load_hugging_face(shape, device) for shape in shapes)
    draft.generation_config.num_assistant_tokens = num_spec_tokens
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    prompt = torch.arange(prompt_len, device=device)[None]
    return {
        "assisted": generation_speed(target, prompt, assistant_model=draft),
        "plain": generation_speed(target, prompt),
    }


def load_hugging_face(shape: Mapping[str, Any], device: torch.device) -> PreTrainedModel:
    """A model of a shape as transformers has it, with random weights."""
    config = LlamaConfig(**{name: shape[name] for name in shape if name != "architectures"})
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def generation_speed(target: PreTrainedModel, prompt: Tensor, **how: Any) -> float:
    """New tokens a second of `generate`, after a short run."""
    seconds = 0.0
    for num_tokens in (8, ASSISTED_TOKENS):
        began = perf_counter()
        out = target.generate(
            prompt,
            max_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
            logits_processor=LogitsProcessorList([OneToken()]),
            **how,
        )
        # Reading the last token waits for the device.
        assert int(out[0, -1]) == FORCED
        seconds = perf_counter() - began
        assert out.shape[1] == prompt.shape[1] + num_tokens
    return ASSISTED_TOKENS / seconds
