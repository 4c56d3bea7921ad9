"""Attention of a decode step: how large its kernel is, and where it leaves parts of a result.

This module refuses to compute what a kernel computes.
"""

import math

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2

from ..kv_cache import LayerCache
from ..transformer import Attention
from .attention import attention_kernel
from .overlap import launch_options

MOST_TOKENS_OF_REQUEST = 8
"""Whose queries one program attends to."""

PROGRAMS = 400
"""Positions are split until there are about so many: three for each of an H200's processors."""

BLOCK = 64
WARPS = 4
STAGES = 2
FEW_PROGRAMS = 32
FEW_PROGRAMS_BLOCK = 128
FEW_PROGRAMS_WARPS = 8
"""Where a processor has one program at most, longer blocks leave fewer parts to add up."""


@frozen(eq=False)
class Attend:
    """Attention of decode steps, with the rotation and the cache's write.

    Attributes:
        angles: see `Rope.table`, in the model's dtype.
        overlaps: whether kernels are started early.
        parts, counts: see `attention_kernel`; used by one kernel after the other.
    """

    angles: Tensor
    overlaps: bool
    parts: Tensor
    counts: Tensor

    @classmethod
    def of(cls, angles: Tensor, group: int, *, overlaps: bool) -> "Attend":
        """With scratch memory for any batch, for groups of so many heads."""
        part = _num_rows(MOST_TOKENS_OF_REQUEST, group) * (angles.shape[-1] + 2)
        device = angles.device
        parts = torch.empty(PROGRAMS * part, device=device)
        counts = torch.zeros(PROGRAMS, dtype=torch.int32, device=device)
        return cls(angles, overlaps, parts, counts)

    def __call__(
        self,
        attention: Attention,
        qkv: Tensor,
        cache: LayerCache,
        *,
        positions: Tensor,
        slot_ids: Tensor,
    ) -> Tensor:
        """Queries, keys and values [num_tokens, …] -> [num_tokens, num_heads * head_dim].

        Args:
            attention: of the layer.
            qkv: as its projection made them.
            cache: of the layer, written at these positions.
            positions: [num_reqs, num_tokens] int64, each the one before or following it.
            slot_ids: [num_reqs] int64.
        """
        num_reqs, num_tokens = positions.shape
        positions = positions if positions.stride(1) == 1 else positions.contiguous()
        _, max_len, twice_key_heads, head_dim = cache.memory.shape
        key_heads = twice_key_heads // 2
        group = qkv.shape[1] // (head_dim * key_heads) - 2
        out = qkv.new_empty(len(qkv), group * key_heads * head_dim)
        programs = num_reqs * key_heads
        few = programs <= FEW_PROGRAMS
        block = FEW_PROGRAMS_BLOCK if few else BLOCK
        splits = min(PROGRAMS // programs, -(-max_len // block))
        norms = attention.head_norms
        attention_kernel[(programs, max(1, splits))](
            qkv,
            qkv.stride(0),
            cache.memory,
            max_len,
            self.angles,
            positions,
            positions.stride(0),
            slot_ids,
            out,
            self.parts,
            self.counts,
            norms[0].weight if norms else qkv,
            norms[1].weight if norms else qkv,
            norms[0].eps if norms else 0.0,
            math.log2(math.e) / math.sqrt(head_dim),
            num_tokens,
            GROUP=group,
            KEY_HEADS=key_heads,
            HEAD_DIM=head_dim,
            ROWS=_num_rows(num_tokens, group),
            BLOCK=block,
            WINDOW=attention.window or 0,
            NORMS=norms is not None,
            OVERLAPS=self.overlaps,
            num_warps=FEW_PROGRAMS_WARPS if few else WARPS,
            num_stages=STAGES,
            **launch_options(overlaps=self.overlaps),
        )
        return out


def _num_rows(num_tokens: int, group: int) -> int:
    """Of queries that one program attends to."""
    return max(16, int(next_power_of_2(num_tokens * group)))
