"""A Triton kernel that reads memory once and does next to nothing: the floor of every backend."""

import torch
import triton
import triton.language as tl
from torch import Tensor

SHAPES = ((1024, 4), (2048, 4), (4096, 8), (8192, 8))
"""Words of 4 bytes per program, and its warps."""


@triton.jit
def read_once_kernel(words, maxima, num_words, SPAN: tl.constexpr):
    """Program i keeps the largest of its SPAN words."""
    program = tl.program_id(0)
    places = program * SPAN + tl.arange(0, SPAN)
    loaded = tl.load(words + places, mask=places < num_words, other=0)
    tl.store(maxima + program, tl.max(loaded, 0))


class ReadOnce:
    """Reads a tensor in one launch.

    Args:
        words: [num_words] int32, less than 2**31 of them.
        shape: one of `SHAPES`.
    """

    def __init__(self, words: Tensor, shape: tuple[int, int]) -> None:
        self._words = words
        self._span, self._num_warps = shape
        num_programs = triton.cdiv(len(words), self._span)
        self._maxima = torch.empty(num_programs, dtype=torch.int32, device=words.device)

    def __call__(self) -> Tensor:
        """Read, on the current stream; the largest word of each program."""
        read_once_kernel[(len(self._maxima),)](
            self._words, self._maxima, len(self._words), SPAN=self._span, num_warps=self._num_warps
        )
        return self._maxima
