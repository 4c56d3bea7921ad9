"""A forward of few tokens through a decoder: the kernels that are launched, and their order."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from attrs import evolve, frozen
from torch import Tensor
from triton import next_power_of_2

from ...core import Scores, UnavailableError
from ..kv_cache import KVCache
from ..transformer import Attend as AttendLayer
from ..transformer import Decoder, Linear, RMSNorm
from .attend import MOST_TOKENS_OF_REQUEST, Attend
from .products import embed_kernel
from .tile import Product
from .tiling import Gpu, most_tokens, scratch, tiling_of

DIVISOR = 16
HEAD_DIMS = (32, 64, 128, 256)


@frozen(eq=False, kw_only=True)
class Hidden:
    """What one layer passes to the next.

    Attributes:
        sums: [num_tokens, size], hidden states.
        scaled: hidden states times the next norm's weight; normalised if there are no parts.
        squares: [parts, num_tokens] float32; the first ones add up to each token's squares.
        num_parts: how many of them count.
    """

    sums: Tensor
    scaled: Tensor
    squares: Tensor
    num_parts: int


@frozen(eq=False)
class FewTokens:
    """The forward of a decoder.

    Attributes:
        decoder: the weights.
        gpu: the GPU that it runs on.
        attend: attention for requests of at most `MOST_TOKENS_OF_REQUEST` tokens.
        most_tokens: the most tokens of a forward.
        parts, counts: see `block_kernel`; one kernel after the other uses them.
    """

    decoder: Decoder
    gpu: Gpu
    attend: Attend
    most_tokens: int
    parts: Tensor
    counts: Tensor

    @classmethod
    def of(cls, decoder: Decoder, angles: Tensor, gpu: Gpu) -> "FewTokens":
        """Prepare a decoder on a GPU."""
        attention, head_dim = decoder.layers[0].attention, angles.shape[-1]
        num_heads = attention.output.weight.shape[1] // head_dim
        key_heads = (len(attention.qkv.weight) // head_dim - num_heads) // 2
        for size in (size for weight in _weights(decoder) for size in weight.shape):
            if size % DIVISOR:
                raise UnavailableError(
                    f"forward triton: expected matrices of multiples of {DIVISOR}, got {size}"
                )
        if head_dim not in HEAD_DIMS:
            raise UnavailableError(
                f"forward triton: expected a head_dim of {HEAD_DIMS}, got {head_dim}"
            )
        parts, counts = scratch(decoder.embedding.device, gpu)
        return cls(
            decoder,
            gpu,
            Attend.of(angles, num_heads // key_heads, gpu),
            most_tokens=most_tokens(list(_weights(decoder)), gpu),
            parts=parts,
            counts=counts,
        )

    def attention_at(self, positions: Tensor, slot_ids: Tensor) -> AttendLayer | None:
        """Attention in this package's kernel, for requests of few enough tokens."""
        if positions.shape[1] > MOST_TOKENS_OF_REQUEST:
            return None
        return partial(self.attend, positions=positions, slot_ids=slot_ids)

    def forward(
        self,
        token_ids: Tensor,
        attend: AttendLayer,
        cache: KVCache,
        *,
        last_only: bool,
        taps: Sequence[int] = (),
    ) -> Scores:
        """Score `most_tokens` ids or fewer, [num_reqs, num_tokens]; see `LanguageModel.forward`."""
        decoder = self.decoder
        hidden = self._embed(token_ids, decoder.layers[0].attention_norm)
        # Layers add to hidden states in place, so taps must be copies.
        tapped = {0: hidden.sums.clone()} if 0 in taps else {}
        next_norms = (*(layer.attention_norm for layer in decoder.layers[1:]), decoder.norm)
        layers = zip(decoder.layers, cache.layers, next_norms, strict=True)
        for number, (layer, layer_cache, norm) in enumerate(layers, 1):
            qkv = self._read(hidden, layer.attention.qkv, layer.attention_norm)
            attended = attend(layer.attention, qkv, layer_cache)
            hidden = self._add(attended, layer.attention.output, hidden, layer.mlp_norm)
            gated = self._read(hidden, layer.mlp.gate_up, layer.mlp_norm, gate=True)
            hidden = self._add(gated, layer.mlp.down, hidden, norm)
            if number in taps:
                tapped[number] = hidden.sums.clone()
        every = token_ids.shape[1] if last_only else 1
        logits = self._read(hidden, decoder.lm_head, decoder.norm, every=every)
        return Scores(
            logits.view(len(token_ids), -1, logits.shape[1]),
            tuple(tapped[tap].view(*token_ids.shape, -1) for tap in taps),
        )

    def _embed(self, token_ids: Tensor, norm: RMSNorm) -> Hidden:
        ids, size = token_ids.flatten(), len(norm.weight)
        sums, scaled = norm.weight.new_empty(2, len(ids), size)
        embed_kernel[(len(ids),)](
            *(ids, self.decoder.embedding, norm.weight, sums, scaled, size, norm.eps),
            COLUMNS=next_power_of_2(size),
            OVERLAPS=self.gpu.overlaps,
            **self.gpu.launch_options,
        )
        squares = sums.new_empty(self._most_parts(len(ids)), len(ids), dtype=torch.float32)
        return Hidden(sums=sums, scaled=scaled, squares=squares, num_parts=0)

    def _most_parts(self, num_tokens: int) -> int:
        """The most parts of squares that adding a product can leave."""
        layer = self.decoder.layers[0]
        added = (layer.attention.output.weight, layer.mlp.down.weight)
        return max(tiling_of(num_tokens, weight, self.gpu, add=True).grid[0] for weight in added)

    def _read(
        self, hidden: Hidden, linear: Linear, norm: RMSNorm, *, gate: bool = False, every: int = 1
    ) -> Tensor:
        """The product with the normalised hidden states of one token in `every`."""
        num_rows = len(linear.weight) // (2 if gate else 1)
        out = hidden.sums.new_empty(len(hidden.sums) // every, num_rows)
        self._multiply(hidden.scaled, linear, out, hidden, norm, gate=gate, every=every)
        return out

    def _add(self, x: Tensor, linear: Linear, hidden: Hidden, next_norm: RMSNorm) -> Hidden:
        """Add a product to hidden states, in place."""
        parts = self._multiply(x, linear, hidden.sums, hidden, next_norm, add=True)
        return evolve(hidden, num_parts=parts)

    def _multiply(
        self,
        x: Tensor,
        linear: Linear,
        out: Tensor,
        hidden: Hidden,
        norm: RMSNorm,
        *,
        gate: bool = False,
        add: bool = False,
        every: int = 1,
    ) -> int:
        """Launch a product; returns how many parts of squares it leaves, if it adds."""
        num_tokens, num_rows = out.shape
        tiling = tiling_of(num_tokens, linear.weight, self.gpu, add=add)
        product = Product(
            x,
            x.stride(0),
            norm.eps,
            linear.weight,
            linear.bias,
            out,
            out.stride(0),
            hidden.scaled if add else None,
            norm.weight,
            hidden.squares,
            num_rows,
            x.shape[1],
            hidden.squares.stride(0),
        )
        tiling.kernel[tiling.grid](
            *(product, hidden.num_parts, num_tokens, every),
            *((self.parts, self.counts) if "SPLITS" in tiling.sizes else ()),
            SQUARES=0 if add or not hidden.num_parts else next_power_of_2(len(hidden.squares)),
            GATE=gate,
            OVERLAPS=self.gpu.overlaps,
            **tiling.sizes,
            **self.gpu.launch_options,
        )
        return tiling.grid[0]


def _weights(decoder: Decoder) -> Iterator[Tensor]:
    for layer in decoder.layers:
        yield layer.attention.qkv.weight
        yield layer.attention.output.weight
        yield layer.mlp.gate_up.weight
        yield layer.mlp.down.weight
    yield decoder.lm_head.weight
