"""Products of 9 to 64 tokens with a matrix, and what lies before and behind.

This module refuses to compute what a kernel computes.
"""

import logging
import struct
from importlib.util import find_spec

import torch
from attrs import field, frozen
from torch import Tensor

from ...core.errors import UnavailableError
from ..cuda_programs import launch
from ..cuda_programs.launch import Kernel
from ..cuda_programs.program import CudaProgram
from .forms import Form, form_of
from .maps import Cut, cut_of_tokens, cut_of_weight, tensor_map

PROGRAM = CudaProgram(__package__, "product.cu")

CAPABILITY = (9, 0)
"""They need clusters, tensor maps and products of this architecture."""

FEWEST_TOKENS, MOST_TOKENS = 9, 64
_ALIGNED = 16
"""Bytes, of what a tensor map is of: addresses and strides."""

_ARGUMENTS = struct.Struct("=128s128sQqQQQQQ7i2f36x")

_logger = logging.getLogger(__name__)


def can_stream(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device can run the kernels, and CuPy is there to load them."""
    if device.type != "cuda" or dtype != torch.bfloat16 or find_spec("cupy") is None:
        return False
    return torch.cuda.get_device_capability(device) == CAPABILITY


def load_kernel(form: Form, way: str, device: torch.device) -> Kernel:
    """See `launch.load_kernel`."""
    sizes = {"threads": form.threads, "memory": form.memory, "cluster": form.splits}
    return launch.load_kernel(PROGRAM, "product", form.macros(way), device, **sizes)


@frozen(eq=False, kw_only=True)
class Product:
    """What to multiply.

    Attributes:
        x: [num_tokens * every, size]; of every so many tokens the last one is taken.
        weight: [num_rows, size], or with gate twice as many rows, gates first.
        bias: as many, or None.
        out: [num_tokens, num_rows]; with add it is added to.
        scaled: like out; with add what has been added up is written here, times gamma.
        gamma: [num_rows].
        squares: [parts, x's tokens] float32, of which the first num_parts add up to squares of x
            before it was scaled; without add, x is divided by their root mean. With add the same
            of out is written.
        eps: of the norm.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor
    scaled: Tensor
    gamma: Tensor
    squares: Tensor
    num_parts: int
    eps: float
    gate: bool
    add: bool
    every: int = 1

    @property
    def way(self) -> str:
        """As the kernel names it."""
        return "ADD" if self.add else "GATE" if self.gate else "PLAIN"


@frozen(eq=False)
class StreamedProducts:
    """Kernels of a device, and maps of the matrices that they have met.

    Attributes:
        num_processors: of the device.
    """

    device: torch.device
    num_processors: int
    _kernels: dict[tuple[Form, str], Kernel | None] = field(factory=dict, init=False)
    _maps: dict[Cut, bytes] = field(factory=dict, init=False)

    @classmethod
    def of(cls, device: torch.device, dtype: torch.dtype) -> "StreamedProducts | None":
        """If the device can run them."""
        if not can_stream(device, dtype):
            return None
        return cls(device, torch.cuda.get_device_properties(device).multi_processor_count)

    def num_parts(self, num_tokens: int, weight: Tensor) -> int:
        """How many parts of squares adding so many tokens' product leaves; 0: it is not taken."""
        form = self._form(num_tokens, weight, "ADD")
        return 0 if form is None else len(weight) // form.rows

    def multiply(self, product: Product) -> int:
        """Launch it; how many parts of squares it leaves, or 0 where it is not taken."""
        if product.x.data_ptr() % _ALIGNED or product.x.stride(0) % (_ALIGNED // 2):
            return 0
        num_tokens, num_rows = product.out.shape
        form = self._form(num_tokens, product.weight, product.way)
        kernel = None if form is None else self._kernels[form, product.way]
        if form is None or kernel is None:
            return 0
        rows, size = product.weight.shape
        num_tiles = rows // form.rows
        weight = cut_of_weight(product.weight, form, gate=product.gate)
        if weight not in self._maps:
            self._maps[weight] = tensor_map(weight)
        arguments = _ARGUMENTS.pack(
            self._maps[weight],
            tensor_map(cut_of_tokens(product.x, form, num_tokens, product.every)),
            product.out.data_ptr(),
            product.out.stride(0),
            product.scaled.data_ptr(),
            product.gamma.data_ptr(),
            0 if product.bias is None else product.bias.data_ptr(),
            *(product.squares.data_ptr(), product.squares.data_ptr()),
            *(product.num_parts, product.squares.stride(0), product.every, num_tokens, num_rows),
            *(num_tiles, form.units(size), float(size), product.eps),
        )
        kernel.launch(form.num_ctas(num_tiles, self.num_processors), arguments, self.device)
        return num_tiles

    def _form(self, num_tokens: int, weight: Tensor, way: str) -> Form | None:
        """Of a product, whose kernel is loaded; None: there is none."""
        if not FEWEST_TOKENS <= num_tokens <= MOST_TOKENS or weight.data_ptr() % _ALIGNED:
            return None
        num_rows, size = weight.shape
        form = form_of(num_tokens, num_rows, size, self.num_processors)
        if form is None:
            return None
        if (form, way) not in self._kernels:
            try:
                self._kernels[form, way] = load_kernel(form, way, self.device)
            except UnavailableError as error:
                _logger.warning("%s", error)
                self._kernels[form, way] = None
        return form if self._kernels[form, way] is not None else None
