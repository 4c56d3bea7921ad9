"""Attention over slots where they lie, by torch's own flash attention: nothing is gathered.

Each request's keys are a span of the cache, and their number is read on the device, so one captured
graph serves every length. Flash attention does not support float32.
"""

import torch
from attrs import frozen
from torch import Tensor

from .kv_cache import LayerCache

FEW_TOKENS = 8
"""Up to so many tokens per request are attended to one by one: the kernel for single queries shares
keys between the heads of a group and splits long spans, which the one for several queries does not.
"""


@frozen(eq=False, kw_only=True)
class Spans:
    """Where queries and the keys that they see lie.

    A span's queries follow each other: the last one sees all keys, the one before all but one.

    Attributes:
        query_starts: [num_spans + 1] int32, among the tokens of the step.
        key_starts: [num_spans + 1] int32, among the rows of a layer's cache; the last is not used.
        num_keys: [num_spans] int32.
        max_queries, max_keys: the largest of each span's numbers, or more.
    """

    query_starts: Tensor
    key_starts: Tensor
    num_keys: Tensor
    max_queries: int
    max_keys: int

    @classmethod
    def of(cls, positions: Tensor, slot_ids: Tensor, max_len: int) -> "Spans":
        """A span for each token or, where there are many of them, for each request.

        Args:
            positions: [num_reqs, num_tokens] int64; many tokens must follow each other.
            slot_ids: [num_reqs] int64.
            max_len: positions per slot.
        """
        num_tokens = 1 if positions.shape[1] <= FEW_TOKENS else positions.shape[1]
        last = positions[:, num_tokens - 1 :]
        device = positions.device
        key_starts = torch.empty(last.numel() + 1, dtype=torch.int32, device=device)
        starts = key_starts[:-1].view(last.shape)
        torch.mul(slot_ids[:, None].expand_as(last), max_len, out=starts)
        num_keys = torch.empty(last.shape, dtype=torch.int32, device=device)
        torch.add(last, 1, out=num_keys)
        query_starts = torch.arange(
            0, positions.numel() + 1, num_tokens, dtype=torch.int32, device=device
        )
        return cls(
            query_starts=query_starts,
            key_starts=key_starts,
            num_keys=num_keys.flatten(),
            max_queries=num_tokens,
            max_keys=max_len,
        )

    def attend(self, queries: Tensor, cache: LayerCache, window: int | None) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        # What varlen_attn calls, which in torch 2.11 does not pass the number of keys on.
        attended: Tensor = torch.ops.aten._flash_attention_forward(  # noqa: SLF001
            queries,
            cache.keys.flatten(0, 1),
            cache.values.flatten(0, 1),
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
