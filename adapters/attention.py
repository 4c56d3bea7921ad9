"""Attention over the cache in torch's own operations, one after the other."""

import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from .kv_cache import LayerCache, Slots
from .layer_operations import LayerOperations
from .spans import Spans
from .transformer import Attention


@frozen(eq=False, kw_only=True)
class AttendInSteps:
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
        spans: where flash attention finds keys; without them slots are copied and biases added.
        operations: computes what lies between the projection and attention.
    """

    num_reqs: int
    cos: Tensor
    signed_sin: Tensor
    rows: Tensor
    slots: Slots
    num_positions: int
    biases: dict[int | None, Tensor]
    spans: Spans | None
    operations: LayerOperations

    def __call__(self, attention: Attention, qkv: Tensor, cache: LayerCache) -> Tensor:
        """See `acceptor.adapters.transformer.Attend`."""
        queries = self.operations.turn_and_store(
            qkv.view(len(qkv), -1, attention.head_dim),
            attention.head_norms,
            self.cos,
            self.signed_sin,
            self.rows,
            cache.rows,
        )
        if self.spans is not None:
            return self.spans.attend(queries, cache, attention.window)
        return self._gather_and_attend(queries, cache, attention.window)

    def _gather_and_attend(self, queries: Tensor, cache: LayerCache, window: int | None) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        keys, values = cache.read(self.slots, self.num_positions)
        by_request = queries.view(self.num_reqs, -1, *queries.shape[1:]).transpose(1, 2)
        bias = self.biases[window]
        # The heads of a group become rows of one head where the bias has been made for that:
        # nothing then repeats keys for them.
        rows = by_request.reshape(self.num_reqs, -1, bias.shape[2], queries.shape[2])
        attended = F.scaled_dot_product_attention(
            rows, keys, values, bias, enable_gqa=rows.shape[1] != keys.shape[1]
        )
        by_group = attended.view(*attended.shape[:2], -1, *by_request.shape[2:])
        return by_group.permute(0, 3, 1, 2, 4).reshape(len(queries), -1)
