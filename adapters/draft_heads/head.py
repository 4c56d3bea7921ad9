"""A draft head: all but its layer."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from ...core.policies.parameters import derived
from ..kv_cache import KVCache, Places


class HeadLayer(Protocol):
    """From features and embeddings to the next features."""

    def new_cache(self, num_slots: int, max_len: int) -> KVCache:
        """Room for max_len positions in each of num_slots slots."""

    def __call__(
        self, features: Tensor, embedded: Tensor, places: Places, cache: KVCache
    ) -> Tensor:
        """[num_reqs, num_rows, feature_size] each -> the same, after writing rows."""


@frozen(eq=False, kw_only=True)
class Head:
    """A `acceptor.core.ports.DraftHead`.

    Attributes:
        read: from the target's hidden states to features.
        layer: between features and features.
        embedding: [target's vocab_size, feature_size].
        norm: between features and lm_head, or None.

    The other fields are as of `DraftHead`.
    """

    taps: tuple[int, ...]
    read: Callable[[Sequence[Tensor]], Tensor]
    layer: HeadLayer
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

    def new_cache(self, num_slots: int, max_len: int) -> KVCache:
        """Room for max_len positions in each of num_slots slots."""
        return self.layer.new_cache(num_slots, max_len)

    def clear(self, cache: KVCache, slot_ids: Sequence[int]) -> None:
        """Forget slots."""
        cache.clear(slot_ids)

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
        """Logits [num_reqs, vocab_size] of what comes behind the next token."""
        logits: Tensor = self.lm_head(features if self.norm is None else self.norm(features))
        return logits
