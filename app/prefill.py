"""Entering a prompt into a model's cache; this module refuses to score it."""

from typing import Any

import torch

from ..core.ports import LanguageModel

CHUNK_LEN = 512
"""How many tokens go through the model at once: bounds the memory of a long prompt."""


def prefill(
    model: LanguageModel[Any], cache: Any, slot_id: int, prompt_token_ids: tuple[int, ...]
) -> None:
    """Write all tokens but the last, which the first decode step scores.

    Args:
        model: whose cache it is.
        cache: from `LanguageModel.new_cache`.
        slot_id: where to write.
        prompt_token_ids: at least one token.
    """
    slot_ids = torch.tensor([slot_id], device=model.device)
    known = torch.tensor([prompt_token_ids[:-1]], dtype=torch.int64, device=model.device)
    positions = torch.arange(known.shape[1], device=model.device)[None]
    for start in range(0, known.shape[1], CHUNK_LEN):
        end = min(start + CHUNK_LEN, known.shape[1])
        model.forward(
            known[:, start:end],
            positions[:, start:end],
            cache,
            slot_ids,
            last_only=True,
            max_position=end - 1,
        )
