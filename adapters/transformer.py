"""The decoder: one plain implementation for all supported architectures.

Tokens of all requests are one flat list except inside attention. This module refuses to own
weights' names, files and memory layouts: see `acceptor.adapters.weights`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from .kv_cache import KVCache, LayerCache, Slots
from .rope import rotate
from .spans import Spans


@frozen(eq=False)
class Linear:
    """weight: [out, in]; bias: [out] or None."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[num_tokens, in] -> [num_tokens, out]."""
        return F.linear(hidden, self.weight, self.bias)


@frozen(eq=False)
class RMSNorm:
    """weight: [size]; root mean square normalisation over the last dimension."""

    weight: Tensor
    eps: float

    def __call__(self, hidden: Tensor) -> Tensor:
        """Same shape."""
        return F.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


@frozen(eq=False, kw_only=True)
class Step:
    """What all layers of one forward share.

    Attributes:
        num_reqs: how many requests the tokens belong to, the same number each.
        cos, signed_sin: [num_tokens, 1, head_dim], see `acceptor.adapters.rope`.
        rows: [num_tokens], where keys and values are written.
        slots: which slots are read.
        num_positions: how many positions of them are read.
        biases: window -> [num_reqs, 1, tokens per request, num_positions]: 0 where a query may
            look, -inf elsewhere.
        spans: where attention finds keys without copying slots; None to copy and add biases.
        halves: how the layers are computed.
    """

    num_reqs: int
    cos: Tensor
    signed_sin: Tensor
    rows: Tensor
    slots: Slots
    num_positions: int
    biases: dict[int | None, Tensor]
    spans: Spans | None
    halves: "Halves"


@frozen(eq=False, kw_only=True)
class Attention:
    """Grouped-query attention over the cache.

    Attributes:
        qkv: projection to heads of queries, keys and values, in this order.
        output: projection back.
        query_norm, key_norm: per head, or None.
        window: how many positions a query sees, its own included; None for all.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None
    qkv: Linear
    output: Linear
    query_norm: RMSNorm | None
    key_norm: RMSNorm | None

    def project(self, hidden: Tensor, step: Step, cache: LayerCache) -> Tensor:
        """[num_tokens, hidden_size] -> queries [num_tokens, num_heads, head_dim].

        Writes this step's keys and values.
        """
        heads = self.qkv(hidden).view(len(hidden), -1, self.head_dim)
        num_turned = self.num_heads + self.num_kv_heads
        turned = rotate(self._normalise(heads[:, :num_turned]), step.cos, step.signed_sin)
        cache.write(step.rows, turned[:, self.num_heads :], heads[:, num_turned:])
        return turned[:, : self.num_heads]

    def _normalise(self, heads: Tensor) -> Tensor:
        if self.query_norm is None or self.key_norm is None:
            return heads
        queries, keys = heads[:, : self.num_heads], heads[:, self.num_heads :]
        return torch.cat((self.query_norm(queries), self.key_norm(keys)), 1)

    def attend(self, queries: Tensor, step: Step, cache: LayerCache) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        if step.spans is not None:
            return step.spans.attend(queries, cache, self.window)
        keys, values = cache.read(step.slots, step.num_positions)
        attended = F.scaled_dot_product_attention(
            queries.view(step.num_reqs, -1, *queries.shape[1:]).transpose(1, 2),
            keys,
            values,
            step.biases[self.window],
            enable_gqa=True,
        )
        return attended.transpose(1, 2).reshape(len(queries), -1)


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

    def begin(
        self, hidden: Tensor, update: Tensor, step: Step, cache: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """All before attention.

        Args:
            hidden: [num_tokens, hidden_size].
            update: what the last layer adds to it, so that adding is fused with normalising.
            step: of this forward.
            cache: of this layer.

        Returns:
            The sum, and the queries [num_tokens, num_heads, head_dim].
        """
        hidden = hidden + update
        return hidden, self.attention.project(self.attention_norm(hidden), step, cache)

    def finish(self, hidden: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        """All behind attention: the hidden state, and what is to be added to it."""
        hidden = hidden + self.attention.output(attended)
        return hidden, self.mlp(self.mlp_norm(hidden))


@frozen(eq=False)
class Halves:
    """What a layer does before and behind attention; somebody may fuse either.

    Attributes:
        begin: `Layer.begin`, or the same in other words.
        finish: `Layer.finish`, likewise.
    """

    begin: Callable[[Layer, Tensor, Tensor, Step, LayerCache], tuple[Tensor, Tensor]]
    finish: Callable[[Layer, Tensor, Tensor], tuple[Tensor, Tensor]]


PLAIN_HALVES = Halves(Layer.begin, Layer.finish)
"""Operation by operation."""


@frozen(eq=False, kw_only=True)
class Decoder:
    """Token ids to logits.

    Attributes:
        embedding: [vocab_size, hidden_size].
    """

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: RMSNorm
    lm_head: Linear

    def __call__(self, token_ids: Tensor, step: Step, cache: KVCache, *, last_only: bool) -> Tensor:
        """Token ids [num_reqs, num_tokens] -> logits [num_reqs, num_tokens or 1, vocab_size]."""
        hidden = F.embedding(token_ids.flatten(), self.embedding)
        update = torch.zeros_like(hidden)
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            hidden, queries = step.halves.begin(layer, hidden, update, step, layer_cache)
            attended = layer.attention.attend(queries, step, layer_cache)
            hidden, update = step.halves.finish(layer, hidden, attended)
        hidden = hidden + update
        if last_only:
            hidden = hidden.view(*token_ids.shape, -1)[:, -1]
        return self.lm_head(self.norm(hidden)).view(len(token_ids), -1, len(self.embedding))
