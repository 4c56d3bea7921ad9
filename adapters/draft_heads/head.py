"""Layers that draft from a target's hidden states, except for the layers themselves."""

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
    """A draft head; its cache is that of a `acceptor.core.ports.SlotModel`.

    Each row takes the features of one token together with the token that follows it. It returns
    features that predict those of the following token; their logits score the token after that.

    Attributes:
        taps: the numbers of target layers after which it reads hidden states; 0 is the embeddings.
        read: turns hidden states […, target's hidden_size] of each tap into features.
        layer: turns features and embeddings, [num_reqs, num_rows, feature_size] each, into the next
            features, after writing rows.
        embedding: [target's vocab_size, feature_size].
        norm: applied to features before lm_head, or None.
        draft_to_target: [vocab_size] int64, the target's id of each of its ids; None where they are
            the same.
        what_to_check: the settings to check when almost nothing is accepted, with the values in
            use.
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
        """The next features after writing rows at (slot, position), [num_reqs, num_rows, …].

        Args:
            features: [num_reqs, num_rows, feature_size], from `read` or from this.
            token_ids: [num_reqs, num_rows] int64, of the target: what follows.
            positions: [num_reqs, num_rows] int64, of the tokens whose features these are.
            cache, slot_ids, max_position: as in `acceptor.core.LanguageModel.forward`.
        """
        limits = len(self.embedding), self.max_model_len
        places = Places.of(token_ids, positions, slot_ids, cache, limits, max_position)
        return self.layer(features, F.embedding(token_ids, self.embedding), places, cache)

    def score(self, features: Tensor) -> Tensor:
        """Logits [num_reqs, vocab_size] of the token after the next one."""
        logits: Tensor = self.lm_head(features if self.norm is None else self.norm(features))
        return logits
