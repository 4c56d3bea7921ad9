"""Before stage 1, if some request has penalties: a bit for each token that its request has seen.

Counts take 40 times the bytes, and every row of a request would read them in every stage.
"""

import triton
import triton.language as tl

from .adjust import seen
from .arguments import opened
from .device import let_next_stage_start
from .logits import BLOCK, seen_bytes_of


@triton.jit
def seen_kernel(call, num_parts, tiles_per_part, TILE: tl.constexpr):
    """A program per part of a request's tokens."""
    opened(call, _gather_part, (num_parts, tiles_per_part, TILE))


@triton.jit
def _gather_part(call, num_parts, tiles_per_part, TILE: tl.constexpr):
    let_next_stage_start(call.variant.overlaps)
    request = tl.program_id(0) // num_parts
    first = tl.program_id(0) % num_parts * tiles_per_part
    last = tl.minimum(first + tiles_per_part, tl.cdiv(call.scratch.num_blocks, TILE))
    for tile in range(first, last):
        group = tile * (TILE * BLOCK // 8) + tl.arange(0, TILE * BLOCK // 8)
        bit = tl.arange(0, 8)[None, :]
        flags = seen(call, request, group[:, None] * 8 + bit)
        byte = tl.sum(flags << bit, 1)
        inside = group < call.scratch.num_blocks * (BLOCK // 8)
        tl.store(seen_bytes_of(call, request) + group, byte.to(tl.uint8), mask=inside)
