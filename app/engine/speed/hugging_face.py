"""The same weights and prompts through Hugging Face's generation, plain and assisted.

Every token is forced, so that every draft is accepted: the best case for assisted generation. This
module refuses to compile or tune anything there: it is what a user gets who calls `generate`.
"""

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

from ....adapters.random_weights import RandomTensors

NUM_TOKENS = 48
_FORCED = 7


class OneToken(LogitsProcessor):  # type: ignore[misc]
    """Leaves no choice."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002, as its base
        """Scores [num_reqs, vocab_size] with one finite entry each."""
        forced = torch.full_like(scores, -torch.inf)
        forced[:, _FORCED] = 0
        return forced


def load_copy(shape: dict[str, Any], seed: int, device: torch.device | str) -> PreTrainedModel:
    """The model of `shapes.make_model` as transformers has it."""
    config = LlamaConfig(**{name: shape[name] for name in shape if name != "architectures"})
    device = torch.device(device)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    state = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    tensors = RandomTensors(shapes, torch.bfloat16, device, seed)
    for name, tensor in state.items():
        if not (shape["tie_word_embeddings"] and name == "lm_head.weight"):
            tensor.copy_(tensors.tensor(name))
    return model


def tokens_per_second(
    target: PreTrainedModel, draft: PreTrainedModel | None, prompt: Tensor, num_spec_tokens: int
) -> float:
    """New tokens over the time of `generate`, for one prompt [1, length], after a short warm-up."""
    how: dict[str, Any] = {}
    if draft is not None:
        draft.generation_config.num_assistant_tokens = num_spec_tokens
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
        how["assistant_model"] = draft
    seconds = 0.0
    for num_tokens in (8, NUM_TOKENS):
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
        # Looking at the last token waits for it.
        assert int(out[0, -1]) == _FORCED
        seconds = perf_counter() - began
        assert out.shape[1] == prompt.shape[1] + num_tokens
    return NUM_TOKENS / seconds
