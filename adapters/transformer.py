"""The decoder: one plain implementation for all supported architectures.

Tokens of all requests are one flat list except inside attention. This module refuses to own
weights' names, files and memory layouts: see `acceptor.adapters.weights`.
"""

import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from .kv_cache import KVCache, LayerCache, Slots
from .pieces import Pieces, RMSNorm
from .spans import Spans


@frozen(eq=False)
class Linear:
    """weight: [out, in]; bias: [out] or None."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[num_tokens, in] -> [num_tokens, out]."""
        return F.linear(hidden, self.weight, self.bias)


@frozen(eq=False, kw_only=True)
class Step:
    """What all layers of one forward share.

    Attributes:
        num_reqs: how many requests the tokens belong to, the same number each.
        cos, signed_sin: [num_tokens, 1, head_dim], see `acceptor.adapters.rope`.
        rows: [num_tokens], where keys and values are written.
        slots: which slots are read.
        num_positions: how many positions of them are read.
        biases: window -> [num_reqs, 1, rows, num_positions]: 0 where a query may look, -inf
            elsewhere. Rows are the tokens of a request, or those for each query head of a group in
            turn.
        spans: where attention finds keys without copying slots; None to copy and add biases.
        pieces: computes what lies between matrix products and attention.
    """

    num_reqs: int
    cos: Tensor
    signed_sin: Tensor
    rows: Tensor
    slots: Slots
    num_positions: int
    biases: dict[int | None, Tensor]
    spans: Spans | None
    pieces: Pieces


@frozen(eq=False, kw_only=True)
class Attention:
    """Grouped-query attention over the cache.

    Attributes:
        qkv: projection to heads of queries, keys and values, in this order.
        output: projection back.
        head_norms: of each query and of each key, or None.
        window: how many positions a query sees, its own included; None for all.
    """

    head_dim: int
    window: int | None
    qkv: Linear
    output: Linear
    head_norms: tuple[RMSNorm, RMSNorm] | None

    def __call__(self, hidden: Tensor, step: Step, cache: LayerCache) -> Tensor:
        """[num_tokens, hidden_size] -> the same; writes this step's keys and values."""
        queries = step.pieces.turn_and_store(
            self.qkv(hidden).view(len(hidden), -1, self.head_dim),
            self.head_norms,
            step.cos,
            step.signed_sin,
            step.rows,
            cache.rows,
        )
        return self.output(self._attend(queries, step, cache))

    def _attend(self, queries: Tensor, step: Step, cache: LayerCache) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        if step.spans is not None:
            return step.spans.attend(queries, cache, self.window)
        keys, values = cache.read(step.slots, step.num_positions)
        by_request = queries.view(step.num_reqs, -1, *queries.shape[1:]).transpose(1, 2)
        bias = step.biases[self.window]
        # The heads of a group become rows of one head where the bias has been made for that:
        # nothing then repeats keys for them.
        rows = by_request.reshape(step.num_reqs, -1, bias.shape[2], self.head_dim)
        attended = F.scaled_dot_product_attention(
            rows, keys, values, bias, enable_gqa=rows.shape[1] != keys.shape[1]
        )
        by_group = attended.view(*attended.shape[:2], -1, *by_request.shape[2:])
        return by_group.permute(0, 3, 1, 2, 4).reshape(len(queries), -1)


@frozen(eq=False)
class MLP:
    """Gated feed-forward; gate_up holds both projections, gate first."""

    gate_up: Linear
    down: Linear

    def __call__(self, hidden: Tensor, step: Step) -> Tensor:
        """[num_tokens, hidden_size] -> the same."""
        return self.down(step.pieces.gate(self.gate_up(hidden)))


@frozen(eq=False, kw_only=True)
class Layer:
    """One decoder layer, normalised before each half."""

    attention_norm: RMSNorm
    attention: Attention
    mlp_norm: RMSNorm
    mlp: MLP


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
        normalised = self.layers[0].attention_norm(hidden)
        next_norms = (*(layer.attention_norm for layer in self.layers[1:]), self.norm)
        for layer, layer_cache, norm in zip(self.layers, cache.layers, next_norms, strict=True):
            update = layer.attention(normalised, step, layer_cache)
            hidden, normalised = step.pieces.add_and_normalise(hidden, update, layer.mlp_norm)
            update = layer.mlp(normalised, step)
            hidden, normalised = step.pieces.add_and_normalise(hidden, update, norm)
        if last_only:
            normalised = normalised.view(*token_ids.shape, -1)[:, -1]
        return self.lm_head(normalised).view(len(token_ids), -1, len(self.embedding))
