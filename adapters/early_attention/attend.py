"""Attention of decode steps with heads of 64 dimensions, a CTA for each request and key head.

This module refuses to compute what a kernel computes.
"""

import logging
import struct

from attrs import field, frozen
from torch import Tensor

from ...core.errors import UnavailableError
from ..cuda_programs.launch import Kernel, load_kernel
from ..cuda_programs.program import CudaProgram
from ..kv_cache import LayerCache
from ..streamed_products.product import can_stream
from ..transformer import Attention

PROGRAM = CudaProgram(__package__, "attend.cu")

HEAD_DIM = 64
FEWEST_REQUESTS = 9
"""Of fewer, positions must be split to have work for all processors."""

MOST_QUERIES = 8
"""Of a request that share a key head."""

THREADS = 256
MEMORY = THREADS // 32 * MOST_QUERIES * 4 * (HEAD_DIM + 4 + 2)
"""Shared memory of a CTA, in bytes: less than a small streamed product leaves."""

_ALIGNED = 16
_ARGUMENTS = struct.Struct("=6Q3qif")

_logger = logging.getLogger(__name__)


@frozen(eq=False)
class EarlyAttention:
    """The kernels of a device, by heads of keys and their group.

    Attributes:
        angles: see `Rope.table`, in the model's dtype.
    """

    angles: Tensor
    _kernels: dict[tuple[int, int], Kernel | None] = field(factory=dict, init=False)

    @classmethod
    def of(cls, angles: Tensor) -> "EarlyAttention | None":
        """If the device can run them, and heads have their size."""
        fits = angles.shape[-1] == HEAD_DIM and can_stream(angles.device, angles.dtype)
        return cls(angles) if fits else None

    def attend(
        self,
        attention: Attention,
        qkv: Tensor,
        cache: LayerCache,
        *,
        positions: Tensor,
        slot_ids: Tensor,
        scale: float,
    ) -> Tensor | None:
        """As `few_tokens.attend.Attend`; None where it is not taken.

        Args:
            attention: of the layer.
            qkv, cache, positions, slot_ids: see there.
            scale: of scores, in powers of two.
        """
        num_reqs, num_tokens = positions.shape
        _, max_len, twice_key_heads, _ = cache.memory.shape
        key_heads = twice_key_heads // 2
        group = qkv.shape[1] // (HEAD_DIM * key_heads) - 2
        fits = num_reqs >= FEWEST_REQUESTS and num_tokens * group <= MOST_QUERIES
        plain = attention.window is None and attention.head_norms is None
        if not (fits and plain) or qkv.data_ptr() % _ALIGNED or qkv.stride(0) % (_ALIGNED // 2):
            return None
        kernel = self._kernel(key_heads, group)
        if kernel is None:
            return None
        out = qkv.new_empty(len(qkv), group * key_heads * HEAD_DIM)
        tensors = (qkv, cache.memory, self.angles, positions, slot_ids, out)
        strides = (qkv.stride(0), positions.stride(0), max_len)
        arguments = _ARGUMENTS.pack(*(t.data_ptr() for t in tensors), *strides, num_tokens, scale)
        kernel.launch(num_reqs * key_heads, arguments, qkv.device)
        return out

    def _kernel(self, key_heads: int, group: int) -> Kernel | None:
        """Loaded; None: there is none."""
        key, device = (key_heads, group), self.angles.device
        if key not in self._kernels:
            sizes = {"threads": THREADS, "memory": MEMORY}
            try:
                self._kernels[key] = load_kernel(PROGRAM, "attend", macros(*key), device, **sizes)
            except UnavailableError as error:
                _logger.warning("%s", error)
                self._kernels[key] = None
        return self._kernels[key]


def macros(key_heads: int, group: int) -> tuple[str, ...]:
    """Options of the compiler."""
    sizes = {"KEY_HEADS": key_heads, "GROUP": group, "THREADS": THREADS, "SHARED_BYTES": MEMORY}
    return tuple(f"-D{name}={size}" for name, size in sizes.items())
