"""Attention of few tokens over slots where they lie, by torch's flex_attention.

It reads a group's keys once for all tokens of a request, and their number on the device, so one
captured graph serves every length. Slots must begin at a block.
"""

from collections.abc import Callable
from functools import cache

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .fusion import compiled
from .kv_cache import LayerCache

BLOCK_LEN = 128
"""Positions of a block."""

HEAD_DIMS = (16, 32, 64, 128, 256)


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

    @staticmethod
    def can_be_used(head_dim: int) -> bool:
        """Whether what torch compiles for a GPU knows heads of this size."""
        return head_dim in HEAD_DIMS

    @classmethod
    def of(cls, positions: Tensor, slot_ids: Tensor, max_len: int) -> "SlotBlocks":
        """Blocks of slots that have max_len positions, a multiple of `BLOCK_LEN`."""
        per_slot = max_len // BLOCK_LEN
        within = torch.arange(per_slot, device=positions.device)
        blocks = torch.add(within, slot_ids[:, None], alpha=per_slot).to(torch.int32)
        num_blocks = (positions[:, -1] // BLOCK_LEN + 1).to(torch.int32)
        return cls(
            positions=positions,
            starts=slot_ids * max_len,
            num_blocks=num_blocks[:, None, None],
            blocks=blocks[:, None, None],
        )

    def attend(self, queries: Tensor, cache: LayerCache, window: int | None) -> Tensor:
        """Queries [num_tokens, num_heads, head_dim] -> [num_tokens, num_heads * head_dim].

        Compiled on a GPU; elsewhere torch computes all scores and keeps them.
        """
        attend = _compiled() if queries.is_cuda else _attend
        return attend(
            queries,
            cache.rows,
            self.positions,
            self.starts,
            self.num_blocks,
            self.blocks,
            window,
        )


Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int | None], Tensor]


def _attend(
    queries: Tensor,
    rows: Tensor,
    positions: Tensor,
    starts: Tensor,
    num_blocks: Tensor,
    blocks: Tensor,
    window: int | None,
) -> Tensor:
    num_reqs, num_tokens = positions.shape
    keys, values = rows.transpose(0, 1)[None].chunk(2, 1)

    def visible(request: Tensor, head: Tensor, query: Tensor, row: Tensor) -> Tensor:  # noqa: ARG001
        place, position = row - starts[request], positions[request, query]
        seen = (place >= 0) & (place <= position)
        return seen if window is None else seen & (place > position - window)

    mask = BlockMask.from_kv_blocks(
        num_blocks,
        blocks,
        BLOCK_SIZE=BLOCK_LEN,
        mask_mod=visible,
        seq_lengths=(num_tokens, keys.shape[2]),
        compute_q_blocks=False,
    )
    by_request = queries.view(num_reqs, num_tokens, *queries.shape[1:]).transpose(1, 2)
    attended = flex_attention(by_request, keys, values, block_mask=mask, enable_gqa=True)
    assert isinstance(attended, Tensor)
    return attended.transpose(1, 2).reshape(len(queries), -1)


@cache
def _compiled() -> Attend:
    return compiled(_attend)
