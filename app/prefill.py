"""Entering a prompt into a model's cache."""

from collections.abc import Sequence
from typing import Any

import torch

from ..core.ports import LanguageModel

CHUNK_LEN = 512
"""How many tokens go through the model at once: bounds the memory of a long prompt."""


def prefill(
    model: LanguageModel[Any], cache: Any, slot_id: int, token_ids: Sequence[int], start: int = 0
) -> None:
    """Write tokens at their places; the first decode step writes and scores the last of a prompt.

    Args:
        model: whose cache it is.
        cache: from `LanguageModel.new_cache`.
        slot_id: where to write.
        token_ids: a prompt without its last token, or its beginning.
        start: how many of them have been written before.
    """
    slot_ids = torch.tensor([slot_id], device=model.device)
    for first in range(start, len(token_ids), CHUNK_LEN):
        end = min(first + CHUNK_LEN, len(token_ids))
        model.forward(
            torch.tensor([token_ids[first:end]], dtype=torch.int64, device=model.device),
            torch.arange(first, end, device=model.device)[None],
            cache,
            slot_ids,
            last_only=True,
            max_position=end - 1,
        )
