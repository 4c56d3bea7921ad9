"""Attention over the cache: by flash attention where it applies, else by plain torch operations.

Flash attention reads keys in place: each request's keys are a span of the cache, and the device
reads the span's length, so one captured graph serves every length. It does not support float32.

Whatever the attention of all layers shares in one forward is planned once.
"""

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import frozen
from torch import Tensor

from .kv_cache import Places
from .model_config import ModelConfig
from .rope import rotate
from .transformer import Attention

FEW_TOKENS = 8
"""Up to this many tokens per request are attended to one by one: only the kernel for single queries
shares keys between the heads of a group and splits long spans.
"""


@frozen(eq=False, kw_only=True)
class Spans:
    """The places of queries and of the keys that they see.

    A span's queries are consecutive: the last one sees all keys, the one before it all but one.

    Attributes:
        query_starts: [num_spans + 1] int32, among the tokens of the step.
        key_starts: [num_spans + 1] int32, among the rows of a layer's cache; the last is not used.
        num_keys: [num_spans] int32.
        max_queries, max_keys: the largest numbers of any span, or more.
    """

    query_starts: Tensor
    key_starts: Tensor
    num_keys: Tensor
    max_queries: int
    max_keys: int

    @classmethod
    def of(cls, places: Places) -> "Spans":
        """One span per token or, if requests have many tokens, one per request."""
        positions, max_len = places.positions, places.max_len
        num_tokens = 1 if positions.shape[1] <= FEW_TOKENS else positions.shape[1]
        last, device = positions[:, num_tokens - 1 :], positions.device
        first_rows = (places.slot_ids[:, None] * max_len).expand_as(last).flatten()
        ends = positions.numel() + 1
        return cls(
            query_starts=torch.arange(0, ends, num_tokens, dtype=torch.int32, device=device),
            key_starts=F.pad(first_rows, (0, 1)).int(),
            num_keys=(last + 1).flatten().int(),
            max_queries=num_tokens,
            max_keys=max_len,
        )

    def attend(self, queries: Tensor, memory: Tensor, window: int | None) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        keys, values = memory.flatten(0, 1).chunk(2, 1)
        # varlen_attn calls this, but in torch 2.11 does not pass on the number of keys.
        attended: Tensor = torch.ops.aten._flash_attention_forward(  # noqa: SLF001
            queries,
            keys,
            values,
            self.query_starts,
            self.key_starts,
            self.max_queries,
            self.max_keys,
            0.0,
            True,
            False,
            window_size_left=None if window is None else window - 1,
            window_size_right=None if window is None else 0,
            seqused_k=self.num_keys,
        )[0]
        return attended.flatten(1)


@frozen(eq=False, kw_only=True)
class AttendInSteps:
    """Attention for all layers of one forward, by what they share.

    Attributes:
        cos, signed_sin: [num_tokens, 1, head_dim], see `acceptor.adapters.rope`.
        biases: window -> [num_reqs, 1, rows, num_positions]: 0 where a query may look, -inf
            elsewhere. Rows are the tokens of a request, or those for each query head of a group in
            turn.
        spans: the keys for flash attention; without them slots are copied and biases added.
    """

    places: Places
    cos: Tensor
    signed_sin: Tensor
    biases: dict[int | None, Tensor]
    spans: Spans | None

    def __call__(self, attention: Attention, qkv: Tensor, memory: Tensor) -> Tensor:
        """See `acceptor.adapters.transformer.Attend`."""
        queries = self._turn_and_store(
            attention, qkv.view(len(qkv), -1, attention.head_dim), memory.flatten(0, 1)
        )
        if self.spans is not None:
            return self.spans.attend(queries, memory, attention.window)
        return self._gather_and_attend(queries, memory, attention.window)

    def _turn_and_store(self, attention: Attention, heads: Tensor, memory: Tensor) -> Tensor:
        """Normalise and rotate queries and keys, and store keys and values.

        Args:
            attention: the layer's.
            heads: [num_tokens, num_heads + 2 * num_kv_heads, head_dim]: queries, keys, values.
            memory: [num_slots * max_len, 2 * num_kv_heads, head_dim], the layer's cache.

        Returns:
            Queries [num_tokens, num_heads, head_dim].
        """
        num_kv_heads = memory.shape[1] // 2
        turned, values = heads[:, :-num_kv_heads], heads[:, -num_kv_heads:]
        if attention.head_norms is not None:
            query_norm, key_norm = attention.head_norms
            queries, keys = turned[:, :-num_kv_heads], turned[:, -num_kv_heads:]
            turned = torch.cat((query_norm(queries), key_norm(keys)), 1)
        turned = rotate(turned, self.cos, self.signed_sin)
        memory.index_copy_(0, self.places.rows, torch.cat((turned[:, -num_kv_heads:], values), 1))
        return turned[:, :-num_kv_heads]

    def _gather_and_attend(self, queries: Tensor, memory: Tensor, window: int | None) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        places, num_reqs = self.places, len(self.places.positions)
        read = memory[places.slots, : places.num_positions]
        keys, values = read.transpose(1, 2).chunk(2, 1)
        by_request = queries.view(num_reqs, -1, *queries.shape[1:]).transpose(1, 2)
        bias = self.biases[window]
        # If the bias was made for it, the heads of a group become rows of one head, so that keys
        # need not be repeated.
        rows = by_request.reshape(num_reqs, -1, bias.shape[2], queries.shape[2])
        attended = F.scaled_dot_product_attention(
            rows, keys, values, bias, enable_gqa=rows.shape[1] != keys.shape[1]
        )
        by_group = attended.view(*attended.shape[:2], -1, *by_request.shape[2:])
        return by_group.permute(0, 3, 1, 2, 4).reshape(len(queries), -1)


@frozen(eq=False)
class StepPlanner:
    """Plans a model's forwards in torch's own operations.

    Attributes:
        rope_table: see `Rope.table`, for all positions, in the model's dtype and on its device.
    """

    config: ModelConfig
    rope_table: Tensor

    @classmethod
    def of(cls, config: ModelConfig, max_model_len: int, weight: Tensor) -> "StepPlanner":
        """A planner for a model with weights like this one."""
        return cls(config, config.rope.table(max_model_len).to(weight))

    def plan(self, places: Places) -> AttendInSteps:
        """Plan a forward of the tokens at these places."""
        flash = self.rope_table.is_cuda and self.rope_table.dtype != torch.float32
        rotation = self.rope_table.index_select(0, places.positions.flatten())
        cos, signed_sin = rotation.unsqueeze(2).unbind(1)
        return AttendInSteps(
            places=places,
            cos=cos,
            signed_sin=signed_sin,
            biases={}
            if flash
            else {window: self._bias(places, window) for window in set(self.config.windows)},
            spans=Spans.of(places) if flash else None,
        )

    def _bias(self, places: Places, window: int | None) -> Tensor:
        bias = places.bias(window, self.rope_table.dtype)
        if places.positions.shape[1] > FEW_TOKENS:
            return bias
        group = self.config.num_heads // self.config.num_kv_heads
        return bias.repeat(1, 1, group, 1)
