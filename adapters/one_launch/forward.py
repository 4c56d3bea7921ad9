"""A forward of few tokens of one request through a small decoder, in one launch.

This module refuses to compute what the kernel computes.
"""

import logging
import math
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from attrs import field, frozen
from torch import Tensor

from ...core.errors import UnavailableError
from ..kv_cache import KVCache
from ..transformer import Decoder
from .launch import load_kernel
from .maps import maps_of
from .sizes import (
    CTAS_OF_CLUSTER,
    HEAD_DIM,
    HIDDEN,
    KEY_HEADS,
    MOST_TOKENS,
    NUM_CLUSTERS,
    THREADS,
    fits,
    macros,
)

CAPABILITY = (9, 0)
"""It needs clusters and tensor maps, and has been measured on these only."""

_logger = logging.getLogger(__name__)


def can_launch(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device can run the kernel, and CuPy is there to launch it."""
    if device.type != "cuda" or dtype != torch.bfloat16 or find_spec("cupy") is None:
        return False
    return torch.cuda.get_device_capability(device) == CAPABILITY


@frozen(eq=False, kw_only=True)
class OneLaunch:
    """The forward of a decoder.

    Attributes:
        decoder: the weights.
        angles: see `Rope.table`, in the model's dtype.
        maps: see `maps_of`.
        parts: int32, pairs of a number and a tag that clusters hand each other.
        last_tag: [1] int32, the highest; no tag is used again.
    """

    decoder: Decoder
    angles: Tensor
    maps: Tensor
    parts: Tensor
    last_tag: Tensor
    _kernels: dict[int, Any] = field(factory=dict, init=False)
    _layers: "WeakKeyDictionary[KVCache, Tensor]" = field(factory=WeakKeyDictionary, init=False)

    @classmethod
    def of(cls, decoder: Decoder, angles: Tensor) -> "OneLaunch | None":
        """For a decoder on a GPU, if the kernel knows its sizes."""
        device = decoder.embedding.device
        if not can_launch(device, decoder.embedding.dtype) or not fits(decoder, angles):
            return None
        shape = (KEY_HEADS + 2 * NUM_CLUSTERS, MOST_TOKENS, HIDDEN, 2)
        try:
            return cls(
                decoder=decoder,
                angles=angles,
                maps=maps_of(decoder),
                parts=torch.zeros(shape, dtype=torch.int32, device=device),
                last_tag=torch.zeros(1, dtype=torch.int32, device=device),
            )
        except UnavailableError as error:
            _logger.warning("%s", error)
            return None

    def takes(self, positions: Tensor, *, last_only: bool) -> bool:
        """Whether to call `forward` for tokens at these positions, [num_reqs, num_tokens]."""
        num_reqs, num_tokens = positions.shape
        few = num_reqs == 1 and num_tokens <= MOST_TOKENS
        return few and (last_only or num_tokens == 1) and self._kernel(num_tokens) is not None

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        slot_ids: Tensor,
        cache: KVCache,
        *,
        first_is_new: Tensor | None = None,
    ) -> Tensor:
        """Score the last token of a request, and write the keys and values of all that are new.

        Args:
            token_ids: [1, num_tokens] int64.
            positions: the same; each is the one before or follows it.
            slot_ids: [1] int64.
            cache: of the model.
            first_is_new: [1] int64, 0 where the first of two tokens is left out; None: it is not.

        Returns:
            [1, 1, vocab_size] in the model's dtype.
        """
        decoder = self.decoder
        logits = self.angles.new_empty(1, 1, len(decoder.lm_head.weight))
        arguments = (
            self._layers_with(cache),
            self.maps,
            decoder.embedding,
            decoder.norm.weight,
            self.angles,
            np.int64(cache.max_len),
            np.float32(math.log2(math.e) / math.sqrt(HEAD_DIM)),
            np.float32(decoder.norm.eps),
            token_ids,
            np.int64(token_ids.stride(1)),
            positions,
            np.int64(positions.stride(1)),
            slot_ids,
            np.uint64(0) if first_is_new is None else first_is_new,
            logits,
            self.parts,
            self.last_tag,
        )
        self._kernel(token_ids.shape[1])(
            NUM_CLUSTERS * CTAS_OF_CLUSTER,
            THREADS,
            tuple(
                np.uint64(one.data_ptr()) if isinstance(one, Tensor) else one for one in arguments
            ),
        )
        return logits

    def _kernel(self, num_tokens: int) -> Any:
        """What launches it, or None where it cannot be."""
        if num_tokens not in self._kernels:
            device, decoder = self.angles.device, self.decoder
            names = macros(num_tokens, len(decoder.layers), len(decoder.lm_head.weight))
            try:
                self._kernels[num_tokens] = load_kernel(names, device)
            except UnavailableError as error:
                _logger.warning("%s", error)
                self._kernels[num_tokens] = None
        return self._kernels[num_tokens]

    def _layers_with(self, cache: KVCache) -> Tensor:
        """Addresses that the kernel finds layers by; made once for a cache."""
        known = self._layers.get(cache)
        if known is None:
            rows = [
                (layer.attention_norm.weight, layer.mlp_norm.weight, layer_cache.memory)
                for layer, layer_cache in zip(self.decoder.layers, cache.layers, strict=True)
            ]
            addresses = [[tensor.data_ptr() for tensor in row] for row in rows]
            known = self._layers[cache] = torch.tensor(addresses, device=self.angles.device)
        return known
