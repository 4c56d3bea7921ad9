"""What a draft head borrows from its target."""

from typing import Any, Protocol

import torch
from torch import Tensor


class Target(Protocol):
    """A language model with its two ends in sight."""

    @property
    def embedding(self) -> Tensor:
        """[vocab_size, hidden_size]."""
        ...

    @property
    def norm(self) -> Any:
        """The final norm, a function of hidden states."""
        ...

    @property
    def lm_head(self) -> Any:
        """A function from normalised hidden states to logits, with a weight."""
        ...

    @property
    def forward_name(self) -> str:
        """What computes it, `transformers` where that library does."""
        ...

    @property
    def vocab_size(self) -> int:
        """The width of its logits."""
        ...

    @property
    def hidden_size(self) -> int:
        """The width of its hidden states."""
        ...

    @property
    def num_layers(self) -> int:
        """How many decoder layers."""
        ...

    @property
    def max_model_len(self) -> int:
        """How many positions a sequence may have."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...
