"""Enters a prompt into a model's cache."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..core import LanguageModel

CHUNK_LEN = 512
"""How many tokens one forward takes; this bounds the memory for a long prompt."""


@frozen(kw_only=True)
class Chunk:
    """A part of a prompt; the first decode step writes and scores its last token.

    Attributes:
        start: the chunk's first place; all before it has been entered.
        end: the first place after the chunk, at most that of the last token.
    """

    slot_id: int
    prompt: Sequence[int]
    start: int
    end: int

    def tokens(self, device: torch.device, ahead: int = 0) -> Tensor:
        """[1, end - start] int64, or the tokens `ahead` places later."""
        token_ids = self.prompt[self.start + ahead : self.end + ahead]
        return torch.tensor([token_ids], dtype=torch.int64, device=device)

    def positions(self, device: torch.device) -> Tensor:
        """[1, end - start] int64."""
        return torch.arange(self.start, self.end, device=device)[None]


def prefill(
    model: LanguageModel[Any],
    cache: Any,
    chunk: Chunk,
    read: Callable[[Tensor], Tensor] = lambda token_ids: token_ids,
    taps: Sequence[int] = (),
) -> Sequence[Tensor]:
    """Write a chunk's tokens at their places.

    Args:
        model: the cache's model.
        cache: from `LanguageModel.new_cache`.
        chunk: the chunk to write.
        read: turns the target's ids into the model's.
        taps: see `LanguageModel.forward`.

    Returns:
        The hidden states at each tap.
    """
    return model.forward(
        read(chunk.tokens(model.device)),
        chunk.positions(model.device),
        cache,
        torch.tensor([chunk.slot_id], device=model.device),
        last_only=True,
        max_position=chunk.end - 1,
        taps=taps,
    ).hidden
