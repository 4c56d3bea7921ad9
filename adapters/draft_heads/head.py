"""A draft head, except for its layer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from ...core.policies.parameters import derived
from ..kv_cache import KVCache, Places, SlotMemory


@frozen(eq=False, kw_only=True)
class Head(SlotMemory):
    """A `acceptor.core.ports.DraftHead`.

    Attributes:
        read: turns the target's hidden states into features.
        layer: turns features and embeddings, [num_reqs, num_rows, feature_size] each, into the next
            features, after writing rows.
        layer_shapes: see `SlotMemory`.
        embedding: [target's vocab_size, feature_size].
        norm: applied to features before lm_head, or None.

    The other fields are those of `DraftHead`.
    """

    taps: tuple[int, ...]
    read: Callable[[Sequence[Tensor]], Tensor]
    layer: Callable[[Tensor, Tensor, Places, KVCache], Tensor]
    layer_shapes: Sequence[tuple[int, int]]
    embedding: Tensor
    norm: Any
    lm_head: Any
    draft_to_target: Tensor | None
    max_model_len: int
    what_to_check: str
    vocab_size: int = derived(lambda head: len(head.lm_head.weight))
    feature_size: int = derived(lambda head: head.embedding.shape[1])
    dtype: torch.dtype = derived(lambda head: head.embedding.dtype)
    device: torch.device = derived(lambda head: head.embedding.device)

    @torch.no_grad()
    def forward(
        self,
        features: Tensor,
        token_ids: Tensor,
        positions: Tensor,
        cache: KVCache,
        slot_ids: Tensor,
        *,
        max_position: int | None = None,
    ) -> Tensor:
        """See `acceptor.core.ports.DraftHead.forward`; errors are those of `Places.of`."""
        limits = len(self.embedding), self.max_model_len
        places = Places.of(token_ids, positions, slot_ids, cache, limits, max_position)
        return self.layer(features, F.embedding(token_ids, self.embedding), places, cache)

    def score(self, features: Tensor) -> Tensor:
        """Logits [num_reqs, vocab_size] of the token after the next one."""
        logits: Tensor = self.lm_head(features if self.norm is None else self.norm(features))
        return logits
