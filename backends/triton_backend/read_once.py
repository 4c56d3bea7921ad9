"""A kernel that reads memory once and does next to nothing: the floor that others are held to.

It refuses to be part of sampling.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

SHAPES = ((1024, 4), (2048, 4), (4096, 8), (8192, 8))
"""Words of 4 bytes per program, and its warps."""


@triton.jit
def read_once_kernel(first, second, maxima, first_words, second_words, SPAN: tl.constexpr):
    """Program i keeps the largest of its SPAN words; those of `first` come first."""
    program = tl.program_id(0)
    num_first = tl.cdiv(first_words, SPAN)
    places = tl.arange(0, SPAN)
    if program < num_first:
        places += program * SPAN
        words = tl.load(first + places, mask=places < first_words, other=0)
    else:
        places += (program - num_first) * SPAN
        words = tl.load(second + places, mask=places < second_words, other=0)
    tl.store(maxima + program, tl.max(words, 0))


class ReadOnce:
    """Reads one or two contiguous tensors in one launch.

    Args:
        tensors: less than 2**31 words of 4 bytes each.
        shape: one of `SHAPES`.
    """

    def __init__(self, tensors: Sequence[Tensor], shape: tuple[int, int]) -> None:
        self._span, self._num_warps = shape
        words = [_as_words(tensor) for tensor in tensors]
        self._first, self._second = words[0], words[-1]
        self._sizes = (len(words[0]), len(words[-1]) if len(words) > 1 else 0)
        self._programs = sum(triton.cdiv(size, self._span) for size in self._sizes)
        self._maxima = torch.empty(self._programs, dtype=torch.int32, device=words[0].device)

    def __call__(self) -> Tensor:
        """Read, on the current stream; the largest word of each program."""
        read_once_kernel[(self._programs,)](
            self._first,
            self._second,
            self._maxima,
            *self._sizes,
            SPAN=self._span,
            num_warps=self._num_warps,
        )
        return self._maxima


def _as_words(tensor: Tensor) -> Tensor:
    numbers = tensor.view(-1)
    if numbers.element_size() == 2:
        numbers = numbers[: len(numbers) // 2 * 2]
    return numbers.view(torch.int32)
