"""A decoder with positions, slots and a cache: the model as the decode loop sees it.

A forward never reads a tensor's values on the host, so it does not wait for a GPU and can be
captured in a CUDA graph.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from attrs import evolve, frozen
from torch import Tensor

from ..core.checks import check_integer, check_integers
from ..core.policies.parameters import choice, derived
from ..core.ports import Scores
from .attention import StepPlanner
from .forward_choice import FORWARDS, choose_kernels
from .kv_cache import KVCache, Places, SlotMemory
from .model_config import ModelConfig
from .transformer import Decoder, Linear, RMSNorm

if TYPE_CHECKING:
    from .few_tokens.forward import FewTokens


@frozen(eq=False)
class TransformerModel(SlotMemory):
    """A `acceptor.core.ports.LanguageModel`.

    Attributes:
        decoder: the weights, all of one dtype on one device.
        wanted_forward: one of `acceptor.adapters.forward_choice.FORWARDS`.

    The other fields are those of the config, the weights and `LanguageModel`.

    Raises:
        InvalidInputError: there is no such forward.
        UnavailableError: the wanted forward cannot compute this model here.
    """

    config: ModelConfig
    decoder: Decoder
    max_model_len: int
    wanted_forward: str = choice("auto", FORWARDS)
    vocab_size: int = derived(lambda model: model.config.vocab_size)
    eos_token_ids: tuple[int, ...] = derived(lambda model: model.config.eos_token_ids)
    num_layers: int = derived(lambda model: model.config.num_layers)
    hidden_size: int = derived(lambda model: model.config.hidden_size)
    embedding: Tensor = derived(lambda model: model.decoder.embedding)
    norm: RMSNorm = derived(lambda model: model.decoder.norm)
    lm_head: Linear = derived(lambda model: model.decoder.lm_head)
    dtype: torch.dtype = derived(lambda model: model.embedding.dtype)
    device: torch.device = derived(lambda model: model.embedding.device)
    layer_shapes: Sequence[tuple[int, int]] = derived(
        lambda model: [model.config.layer_shape] * model.num_layers
    )
    planner: StepPlanner = derived(
        lambda model: StepPlanner.of(model.config, model.max_model_len, model.embedding)
    )
    _kernels: "FewTokens | None" = derived(
        lambda model: choose_kernels(model.wanted_forward, model.decoder, model.planner.rope_table)
    )

    @property
    def forward_name(self) -> str:
        """The forward of decode steps: `triton` or `torch`."""
        return "torch" if self._kernels is None else "triton"

    def first_layers(self, num_layers: int) -> "TransformerModel":
        """The model that ends after some layers, with the same weights, norm and LM head.

        Raises:
            InvalidInputError: num_layers is not in [1, the number of layers].
        """
        check_integer("num_layers", num_layers, 1, self.config.num_layers)
        config = evolve(self.config, windows=self.config.windows[:num_layers])
        decoder = evolve(self.decoder, layers=self.decoder.layers[:num_layers])
        return evolve(self, config=config, decoder=decoder)

    @torch.no_grad()
    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: KVCache,
        slot_ids: Tensor | None = None,
        *,
        last_only: bool = False,
        max_position: int | None = None,
        taps: Sequence[int] = (),
    ) -> Scores:
        """Score tokens, see `acceptor.core.ports.LanguageModel.forward`.

        Where requests differ in length, pad with any token at the next positions: later tokens
        overwrite them. Each slot comes once; without slot_ids request i uses slot i. Without
        max_position a GPU attends to the whole length of the cache.

        Raises:
            InvalidInputError: wrong shape, dtype, device or tap; on CPU also a token outside the
                vocabulary, or a slot or position outside the cache.
        """
        limits = self.vocab_size, self.max_model_len
        places = Places.of(token_ids, positions, slot_ids, cache, limits, max_position)
        check_integers("taps", taps, 0, self.config.num_layers)
        kernels = self._kernels
        attend = None if kernels is None else kernels.attention_at(positions, places.slot_ids)
        if attend is None:
            attend = self.planner.plan(places)
        if kernels is not None and positions.numel() <= kernels.most_tokens:
            return kernels.forward(token_ids, attend, cache, last_only=last_only, taps=taps)
        return self.decoder(token_ids, attend, cache, last_only=last_only, taps=taps)
