"""What a layer computes between its matrix products and attention, operation by operation.

Each piece is one function of tensors, so that it can be one kernel: see `acceptor.adapters.fusion`.
None multiplies matrices: a compiler that sees a product and the residual added to it lets the
product add it, and copies the residual first.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from .rope import rotate


@frozen(eq=False)
class RMSNorm:
    """weight: [size]; root mean square normalisation over the last dimension."""

    weight: Tensor
    eps: float

    def __call__(self, hidden: Tensor) -> Tensor:
        """Same shape."""
        return F.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


def add_and_normalise(hidden: Tensor, update: Tensor, norm: RMSNorm) -> tuple[Tensor, Tensor]:
    """The sum of hidden states and an update, [num_tokens, hidden_size], and its norm."""
    hidden = hidden + update
    return hidden, norm(hidden)


def turn_and_store(
    heads: Tensor,
    head_norms: tuple[RMSNorm, RMSNorm] | None,
    cos: Tensor,
    signed_sin: Tensor,
    rows: Tensor,
    cache_rows: Tensor,
) -> Tensor:
    """Normalise and rotate queries and keys, and store keys and values.

    Args:
        heads: [num_tokens, num_heads + 2 * num_kv_heads, head_dim], queries, keys, values.
        head_norms: of each query and of each key, or None.
        cos, signed_sin: [num_tokens, 1, head_dim], see `acceptor.adapters.rope`.
        rows: [num_tokens] int64, of the cache.
        cache_rows: `LayerCache.rows`.

    Returns:
        Queries [num_tokens, num_heads, head_dim].
    """
    num_kv_heads = cache_rows.shape[1] // 2
    turned, values = heads[:, :-num_kv_heads], heads[:, -num_kv_heads:]
    if head_norms is not None:
        query_norm, key_norm = head_norms
        queries, keys = turned[:, :-num_kv_heads], turned[:, -num_kv_heads:]
        turned = torch.cat((query_norm(queries), key_norm(keys)), 1)
    turned = rotate(turned, cos, signed_sin)
    cache_rows.index_copy_(0, rows, torch.cat((turned[:, -num_kv_heads:], values), 1))
    return turned[:, :-num_kv_heads]


def gate(gate_and_up: Tensor) -> Tensor:
    """[num_tokens, 2 * size] -> [num_tokens, size], the second half times SiLU of the first."""
    gate, up = gate_and_up.chunk(2, -1)
    return F.silu(gate).mul_(up)


@frozen(eq=False)
class LayerOperations:
    """Either the functions of this module, or the same in other words."""

    add_and_normalise: Callable[[Tensor, Tensor, RMSNorm], tuple[Tensor, Tensor]]
    turn_and_store: Callable[
        [Tensor, tuple[RMSNorm, RMSNorm] | None, Tensor, Tensor, Tensor, Tensor], Tensor
    ]
    gate: Callable[[Tensor], Tensor]


PLAIN_OPERATIONS = LayerOperations(add_and_normalise, turn_and_store, gate)
