"""EAGLE (arXiv 2401.15077) and EAGLE-3 (arXiv 2503.01840): a head of one decoder layer.

Attention, cache and products are those of `acceptor.adapters.transformer`.
"""

from collections.abc import Callable, Sequence

import torch
from attrs import frozen
from torch import Tensor

from ..attention import StepPlanner
from ..kv_cache import KVCache, Places
from ..transformer import MLP, Attention, Linear, RMSNorm


@frozen(eq=False)
class Merge:
    """EAGLE: projects embedding and features to one vector, which attention takes as it is."""

    project: Linear

    def __call__(self, features: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """See `EagleLayer.mix`."""
        merged = self.project(torch.cat((embedded, features), -1))
        return merged, merged


@frozen(eq=False, kw_only=True)
class SideBySide:
    """EAGLE-3: attention sees embedding and features side by side, and adds to the features.

    Attributes:
        normalised_residual: whether attention adds to the normalised features.
    """

    embedding_norm: RMSNorm
    features_norm: RMSNorm
    normalised_residual: bool

    def __call__(self, features: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """See `EagleLayer.mix`."""
        normalised = self.features_norm(features)
        both = torch.cat((self.embedding_norm(embedded), normalised), -1)
        return both, normalised if self.normalised_residual else features


@frozen(eq=False, kw_only=True)
class EagleLayer:
    """The layer of a `acceptor.adapters.draft_heads.head.Head`.

    Attributes:
        mix: turns both, [num_tokens, hidden_size] each, into attention's input and its residual.
        output_norm: normalises the next features, or None.
    """

    mix: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    attention: Attention
    mlp_norm: RMSNorm
    mlp: MLP
    output_norm: RMSNorm | None
    planner: StepPlanner

    def __call__(
        self, features: Tensor, embedded: Tensor, places: Places, cache: KVCache
    ) -> Tensor:
        """See `Head.layer`."""
        attend, (layer_cache,) = self.planner.plan(places), cache.layers
        seen, residual = self.mix(features.flatten(0, 1), embedded.flatten(0, 1))
        hidden = residual + self.attention(seen, attend, layer_cache)
        hidden = hidden + self.mlp(self.mlp_norm(hidden))
        hidden = hidden if self.output_norm is None else self.output_norm(hidden)
        return hidden.view_as(features)


@frozen(eq=False)
class Fusion:
    """Turns several hidden states of a token into its features.

    Attributes:
        norms: one for each state, one for all side by side, or none.
        project: takes all states side by side.
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
