"""The decoder: one plain implementation for all supported architectures.

Tokens of all requests form one flat list except inside attention. The names, files and memory
layouts of weights are in `acceptor.adapters.weights`.
"""

from collections.abc import Callable, Sequence

import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from ..core.ports import Scores
from .kv_cache import KVCache


@frozen(eq=False)
class RMSNorm:
    """weight: [size]; root mean square normalisation over the last dimension."""

    weight: Tensor
    eps: float

    def __call__(self, hidden: Tensor) -> Tensor:
        """Same shape."""
        return F.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


@frozen(eq=False)
class Linear:
    """weight: [out, in]; bias: [out] or None."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[num_tokens, in] -> [num_tokens, out]."""
        return F.linear(hidden, self.weight, self.bias)


Attend = Callable[["Attention", Tensor, Tensor], Tensor]
"""A layer's attention, its projected queries, keys and values [num_tokens, …], and its cache, which
is written -> the attention's result, [num_tokens, num_heads * head_dim]."""


@frozen(eq=False, kw_only=True)
class Attention:
    """Grouped-query attention over the cache.

    Attributes:
        qkv: projection to the heads of queries, keys and values, in this order.
        head_norms: norms of each query and each key, or None.
        window: how many positions a query sees, its own included; None for all.
    """

    head_dim: int
    window: int | None
    qkv: Linear
    output: Linear
    head_norms: tuple[RMSNorm, RMSNorm] | None

    def __call__(self, hidden: Tensor, attend: Attend, memory: Tensor) -> Tensor:
        """[num_tokens, hidden_size] -> the same; writes this step's keys and values."""
        return self.output(attend(self, self.qkv(hidden), memory))


@frozen(eq=False)
class MLP:
    """Gated feed-forward; gate_up holds both projections, gate first."""

    gate_up: Linear
    down: Linear

    def __call__(self, hidden: Tensor) -> Tensor:
        """[num_tokens, hidden_size] -> the same."""
        gate, up = self.gate_up(hidden).chunk(2, -1)
        return self.down(F.silu(gate).mul_(up))


@frozen(eq=False, kw_only=True)
class Layer:
    """One decoder layer, normalised before each half."""

    attention_norm: RMSNorm
    attention: Attention
    mlp_norm: RMSNorm
    mlp: MLP


@frozen(eq=False, kw_only=True)
class Decoder:
    """Token ids to logits; embedding: [vocab_size, hidden_size]."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: RMSNorm
    lm_head: Linear

    def __call__(
        self,
        token_ids: Tensor,
        attend: Attend,
        cache: KVCache,
        *,
        last_only: bool,
        taps: Sequence[int] = (),
    ) -> Scores:
        """Score token ids [num_reqs, num_tokens]; see `LanguageModel.forward`."""
        hidden = F.embedding(token_ids, self.embedding).flatten(0, 1)
        tapped = {0: hidden}
        for number, (layer, layer_cache) in enumerate(
            zip(self.layers, cache.layers, strict=True), 1
        ):
            hidden = hidden + layer.attention(layer.attention_norm(hidden), attend, layer_cache)
            hidden = hidden + layer.mlp(layer.mlp_norm(hidden))
            if number in taps:
                tapped[number] = hidden
        if last_only:
            hidden = hidden.view(*token_ids.shape, -1)[:, -1]
        return Scores(
            self.lm_head(self.norm(hidden)).view(len(token_ids), -1, len(self.embedding)),
            tuple(tapped[tap].view(*token_ids.shape, -1) for tap in taps),
        )
