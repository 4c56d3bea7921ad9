"""EAGLE (arXiv 2401.15077) and EAGLE-3 (arXiv 2503.01840): a head of one decoder layer.

Attention, cache and products are those of `acceptor.adapters.transformer`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from ...core.policies.parameters import derived
from ..attention import StepPlanner
from ..kv_cache import KVCache, LayerCache, Places, check_tokens
from ..transformer import MLP, Attention, Linear, RMSNorm, Step


@frozen(eq=False)
class Merge:
    """EAGLE: embedding and features are projected to one vector, which attention takes as it is."""

    project: Linear

    def __call__(self, features: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """See `HeadLayer.mix`."""
        merged = self.project(torch.cat((embedded, features), -1))
        return merged, merged


@frozen(eq=False, kw_only=True)
class SideBySide:
    """EAGLE-3: attention sees both, the embedding first, and adds to the features alone.

    Attributes:
        normalised_residual: whether it adds to the normalised features.
    """

    embedding_norm: RMSNorm
    features_norm: RMSNorm
    normalised_residual: bool

    def __call__(self, features: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """See `HeadLayer.mix`."""
        normalised = self.features_norm(features)
        both = torch.cat((self.embedding_norm(embedded), normalised), -1)
        return both, normalised if self.normalised_residual else features


@frozen(eq=False, kw_only=True)
class HeadLayer:
    """From features and embeddings to the next features.

    Attributes:
        mix: from both, [num_tokens, hidden_size] each, to what attention sees and what it adds to.
        output_norm: of the next features, or None.
    """

    mix: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    attention: Attention
    mlp_norm: RMSNorm
    mlp: MLP
    output_norm: RMSNorm | None

    def __call__(self, features: Tensor, embedded: Tensor, step: Step, cache: LayerCache) -> Tensor:
        """[num_tokens, hidden_size] each -> the same."""
        seen, residual = self.mix(features, embedded)
        update = self.attention(seen, step, cache)
        hidden, normalised = step.operations.add_and_normalise(residual, update, self.mlp_norm)
        hidden = hidden + self.mlp(normalised, step)
        return hidden if self.output_norm is None else self.output_norm(hidden)


@frozen(eq=False)
class Fusion:
    """Several hidden states of a token to its features.

    Attributes:
        norms: of each, of all side by side, or none.
        project: from all side by side.
    """

    norms: tuple[RMSNorm, ...]
    project: Linear

    def __call__(self, hidden: Sequence[Tensor]) -> Tensor:
        """[…, target's hidden_size] each -> […, hidden_size]."""
        if len(self.norms) == len(hidden):
            hidden = [norm(one) for norm, one in zip(self.norms, hidden, strict=True)]
        together = torch.cat(tuple(hidden), -1)
        if len(self.norms) == 1:
            together = self.norms[0](together)
        return self.project(together)


@frozen(eq=False, kw_only=True)
class EagleHead:
    """A `acceptor.core.ports.DraftHead`.

    Attributes:
        read: from the target's hidden states to features.
        layer: between features and features.
        embedding: [target's vocab_size, hidden_size].
        norm: between features and lm_head, or None.

    The other fields are as of `DraftHead`.
    """

    taps: tuple[int, ...]
    read: Callable[[Sequence[Tensor]], Tensor]
    layer: HeadLayer
    embedding: Tensor
    norm: RMSNorm | None
    lm_head: Any
    draft_to_target: Tensor | None
    planner: StepPlanner
    max_model_len: int
    what_to_check: str
    vocab_size: int = derived(lambda head: int(head.lm_head.weight.shape[0]))
    feature_size: int = derived(lambda head: head.planner.config.hidden_size)
    dtype: torch.dtype = derived(lambda head: head.embedding.dtype)
    device: torch.device = derived(lambda head: head.embedding.device)

    def new_cache(self, num_slots: int, max_len: int) -> KVCache:
        """Room for max_len positions in each of num_slots slots."""
        return self.planner.new_cache(1, num_slots, max_len)

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
        """See `acceptor.core.ports.DraftHead.forward`; errors are those of `TransformerModel`."""
        check_tokens(token_ids, positions, slot_ids, len(self.embedding), self.device)
        limit = min(cache.max_len, self.max_model_len)
        places = Places.of(positions, slot_ids, cache.slot_ids, limit, max_position)
        step = self.planner.plan(places, cache)
        embedded = F.embedding(token_ids, self.embedding)
        (layer_cache,) = cache.layers
        following = self.layer(features.flatten(0, 1), embedded.flatten(0, 1), step, layer_cache)
        return following.view(*token_ids.shape, -1)

    def score(self, features: Tensor) -> Tensor:
        """Logits [num_reqs, vocab_size] of what comes behind the next token."""
        logits: Tensor = self.lm_head(features if self.norm is None else self.norm(features))
        return logits
