"""A Triton kernel that reads memory once and does next to nothing: the floor of every backend."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

SHAPES = ((1024, 4), (2048, 4), (4096, 8), (8192, 8))
"""The 4-byte words per program, and its warps."""


@triton.jit
def read_once_kernel(words, maxima, num_words, SPAN: tl.constexpr):
    """Program i stores the largest of its SPAN words."""
    program = tl.program_id(0)
    places = program * SPAN + tl.arange(0, SPAN)
    loaded = tl.load(words + places, mask=places < num_words, other=0)
    tl.store(maxima + program, tl.max(loaded, 0))


def read_once(words: Tensor, shape: tuple[int, int]) -> Callable[[], Tensor]:
    """Returns a function that reads under 2**31 int32 words in one launch of one of `SHAPES`."""
    span, num_warps = shape
    maxima = torch.empty(triton.cdiv(len(words), span), dtype=torch.int32, device=words.device)

    def read() -> Tensor:
        read_once_kernel[(len(maxima),)](words, maxima, len(words), SPAN=span, num_warps=num_warps)
        return maxima

    return read
