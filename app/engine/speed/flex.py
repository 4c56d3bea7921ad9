"""Attention over slots by torch's flex_attention: a candidate, timed beside what the engine uses.

It reads each key once for all queries and heads that share it, however many tokens a request has.
This module refuses to serve: nobody has seen it run on a GPU.
"""

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from ....adapters.kv_cache import LayerCache

BLOCK_LEN = 128
"""Positions of a block; slots must begin at one."""


@frozen(eq=False, kw_only=True)
class SlotBlocks:
    """Which blocks of a cache each request sees, one for all layers of a step.

    Attributes:
        positions: [num_reqs, num_tokens] int64, of the queries; they follow each other.
        starts: [num_reqs] int64, the first row of each request's slot.
        num_blocks: [num_reqs, 1, 1] int32, filled so far.
        blocks: [num_reqs, 1, 1, blocks per slot] int32, of the cache.
    """

    positions: Tensor
    starts: Tensor
    num_blocks: Tensor
    blocks: Tensor

    @classmethod
    def of(cls, positions: Tensor, slot_ids: Tensor, max_len: int) -> "SlotBlocks":
        """Blocks of slots that have max_len positions, a multiple of `BLOCK_LEN`."""
        per_slot = max_len // BLOCK_LEN
        within = torch.arange(per_slot, device=positions.device)
        blocks = (slot_ids[:, None] * per_slot + within).to(torch.int32)
        num_blocks = (positions[:, -1] // BLOCK_LEN + 1).to(torch.int32)
        return cls(
            positions=positions,
            starts=slot_ids * max_len,
            num_blocks=num_blocks[:, None, None],
            blocks=blocks[:, None, None],
        )

    def attend(self, queries: Tensor, cache: LayerCache) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim]."""
        num_reqs, num_tokens = self.positions.shape
        starts, positions = self.starts, self.positions
        keys, values = cache.rows.transpose(0, 1)[None].chunk(2, 1)

        def visible(request: Tensor, head: Tensor, query: Tensor, row: Tensor) -> Tensor:  # noqa: ARG001
            place = row - starts[request]
            return (place >= 0) & (place <= positions[request, query])

        mask = BlockMask.from_kv_blocks(
            self.num_blocks,
            self.blocks,
            BLOCK_SIZE=BLOCK_LEN,
            mask_mod=visible,
            seq_lengths=(num_tokens, keys.shape[2]),
            compute_q_blocks=False,
        )
        by_request = queries.view(num_reqs, num_tokens, *queries.shape[1:]).transpose(1, 2)
        attended = flex_attention(by_request, keys, values, block_mask=mask, enable_gqa=True)
        assert isinstance(attended, Tensor)
        return attended.transpose(1, 2).reshape(len(queries), -1)
