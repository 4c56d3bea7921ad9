"""Attention of a decode step: sizes its kernel, and holds the memory for partial results."""

import math

import torch
from attrs import evolve, frozen
from torch import Tensor
from triton import next_power_of_2

from ..transformer import Attention
from .attention import attention_kernel
from .tiling import Gpu

MOST_TOKENS_OF_REQUEST = 8
"""The most tokens of a request: one program attends to all their queries."""

PROGRAMS_PER_PROCESSOR = 3
"""The most programs of a launch per processor, if positions are split."""


@frozen
class Cut:
    """How a launch is divided into programs.

    Attributes:
        programs: positions are split until there are about this many programs per processor.
        block: positions that are read at a time.
        least: blocks that a program takes before another one takes any.
        warps: warps per program.
        stages: blocks that are loaded at the same time.
    """

    programs: int
    block: int
    least: int
    warps: int
    stages: int = 2


PROCESSORS_OF_FEW = 4
"""A launch has few programs if there are this many processors for each."""

FEW = Cut(programs=3, block=128, least=1, warps=8)
SMALL_HEAD_DIM = 64
SMALL_HEADS = Cut(programs=3, block=64, least=1, warps=4)
LARGE_HEADS = Cut(programs=1, block=64, least=4, warps=8, stages=3)
"""The fastest on an H200, whose processors hold one of these and three of the previous kind."""

MOST_KEYS = 128 * 128
"""The most elements of a block, so that shared memory holds it."""


@frozen(eq=False)
class Attend:
    """Attention of decode steps, with the rotation and the cache's write.

    Attributes:
        angles: see `Rope.table`, in the model's dtype.
        gpu: the GPU that it runs on.
        parts, counts: see `attention_kernel`; one kernel after the other uses them.
    """

    angles: Tensor
    gpu: Gpu
    parts: Tensor
    counts: Tensor

    @classmethod
    def of(cls, angles: Tensor, group: int, gpu: Gpu) -> "Attend":
        """Allocate scratch memory for any batch, for groups of this many heads."""
        part = _num_rows(MOST_TOKENS_OF_REQUEST, group) * (angles.shape[-1] + 2)
        programs, device = PROGRAMS_PER_PROCESSOR * gpu.num_processors, angles.device
        parts = torch.empty(programs * part, device=device)
        counts = torch.zeros(programs, dtype=torch.int32, device=device)
        return cls(angles, gpu, parts, counts)

    def __call__(
        self,
        attention: Attention,
        qkv: Tensor,
        memory: Tensor,
        *,
        positions: Tensor,
        slot_ids: Tensor,
    ) -> Tensor:
        """Queries, keys and values [num_tokens, …] -> [num_tokens, num_heads * head_dim].

        Args:
            attention: the layer's.
            qkv: the output of the layer's projection.
            memory: the layer's cache, see `KVCache.layers`; written at these positions.
            positions: [num_reqs, num_tokens] int64, each equal to the one before it or one more.
            slot_ids: [num_reqs] int64.
        """
        num_reqs, num_tokens = positions.shape
        positions = positions if positions.stride(1) == 1 else positions.contiguous()
        _, max_len, twice_key_heads, head_dim = memory.shape
        scale = math.log2(math.e) / math.sqrt(head_dim)
        key_heads = twice_key_heads // 2
        group = qkv.shape[1] // (head_dim * key_heads) - 2
        out = qkv.new_empty(len(qkv), group * key_heads * head_dim)
        programs = num_reqs * key_heads
        cut = cut_of(programs, head_dim, self.gpu)
        most = cut.programs * self.gpu.num_processors
        splits = min(most // programs, -(-max_len // cut.block))
        norms = attention.head_norms
        attention_kernel[(programs, max(1, splits))](
            qkv,
            qkv.stride(0),
            memory,
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
            scale,
            num_tokens,
            cut.least,
            GROUP=group,
            KEY_HEADS=key_heads,
            HEAD_DIM=head_dim,
            ROWS=_num_rows(num_tokens, group),
            BLOCK=cut.block,
            WINDOW=attention.window or 0,
            NORMS=norms is not None,
            OVERLAPS=self.gpu.overlaps,
            num_warps=cut.warps,
            num_stages=min(cut.stages, _most_stages(self.gpu)),
            **self.gpu.launch_options,
        )
        return out


def cut_of(programs: int, head_dim: int, gpu: Gpu) -> Cut:
    """The cut of a launch that would have this many programs if positions were not split."""
    cut = SMALL_HEADS if head_dim <= SMALL_HEAD_DIM else LARGE_HEADS
    if PROCESSORS_OF_FEW * programs <= gpu.num_processors:
        cut = FEW
    return evolve(cut, block=min(cut.block, MOST_KEYS // head_dim))


def _most_stages(gpu: Gpu) -> int:
    """The most stages of 16-bit keys and values; the first stage is in registers."""
    return 1 + gpu.shared_memory // (2 * 2 * MOST_KEYS)


def _num_rows(num_tokens: int, group: int) -> int:
    """The rows of queries that one program attends to."""
    return max(16, int(next_power_of_2(num_tokens * group)))
