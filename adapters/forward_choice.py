"""Chooses the forward of a model: Triton's kernels for decode steps, or torch's libraries alone."""

import logging
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from attrs import evolve
from torch import Tensor

from ..core.errors import UnavailableError
from .error_text import unfit
from .kv_cache import KVCache
from .transformer import Decoder

if TYPE_CHECKING:
    from .few_tokens.forward import FewTokens

FORWARDS = ("auto", "triton", "torch")
"""The choices; auto takes Triton's kernels where they apply."""

_logger = logging.getLogger(__name__)


def choose_kernels(forward: str, decoder: Decoder, angles: Tensor) -> "FewTokens | None":
    """Triton's kernels for a model; None where torch's libraries compute all of it.

    The angles are those of `Rope.table`, in the model's dtype.
    """
    if forward == "torch":
        return None
    try:
        return _load_kernels(decoder, angles)
    except UnavailableError as error:
        if forward == "triton":
            raise
        _logger.info("%s", error)
        return None


def why_no_triton(device: torch.device) -> str | None:
    """Why Triton's kernels cannot run on a device; None if no reason is known."""
    if device.type != "cuda":
        return f"expected a CUDA device, got {device.type}"
    if find_spec("triton") is None:
        return "expected Triton, got none; install with: pip install 'acceptor[triton]'"
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "expected a C compiler, which Triton needs (cc, gcc or clang), got none"
    return None


def _load_kernels(decoder: Decoder, angles: Tensor) -> "FewTokens":
    device, dtype = angles.device, angles.dtype
    reason = why_no_triton(device)
    if reason is None and dtype not in (torch.bfloat16, torch.float16):
        reason = f"expected bfloat16 or float16, got {str(dtype).removeprefix('torch.')}"
    if reason is not None:
        raise UnavailableError(f"forward triton: {reason}")
    from .few_tokens.forward import FewTokens  # noqa: PLC0415
    from .few_tokens.tiling import Gpu  # noqa: PLC0415

    kernels = FewTokens.of(decoder, angles, Gpu.of(device))
    try:
        with torch.cuda.device(device):
            _try_out(kernels)
    except torch.OutOfMemoryError:
        # Torch's libraries would need as much memory.
        raise
    except Exception as error:
        expected = "kernels that compile and run"
        raise unfit("forward triton", expected, error, UnavailableError) from error
    return kernels


def _try_out(kernels: "FewTokens") -> None:
    """Compile and run one layer's kernels, for one token and for the most that they take."""
    decoder, angles = kernels.decoder, kernels.attend.angles
    one_layer = evolve(kernels, decoder=evolve(decoder, layers=decoder.layers[:1]))
    attention = decoder.layers[0].attention
    num_kept = len(attention.qkv.weight) - attention.output.weight.shape[1]
    shape = num_kept // attention.head_dim, attention.head_dim
    for num_tokens in (1, kernels.most_tokens):
        cache = KVCache.allocate([shape], num_tokens, 1, angles.dtype, angles.device)
        token_ids = torch.zeros((num_tokens, 1), dtype=torch.int64, device=angles.device)
        attend = one_layer.attention_at(token_ids, cache.slot_ids)
        assert attend is not None
        one_layer.forward(token_ids, attend, cache, last_only=False)
    torch.cuda.synchronize()
