"""A network of the transformers library with our positions, slots and cache.

Sliding layers keep all positions, too: otherwise a rejected draft would have pushed some out of a
window for good.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor
from transformers import Cache

from ...core import Scores, UnavailableError
from ...core.checks import check_integers
from ...core.policies.parameters import derived
from ..kv_cache import KVCache, Places, SlotMemory

Shapes = Mapping[int, tuple[tuple[int, int], tuple[int, int]]]
"""Layer -> (number of heads, size of a head), for its keys and for its values."""


class StepCache(Cache):  # type: ignore[misc]  # transformers is not typed
    """The keys and values of these layers, in turn, as one forward of the library sees them."""

    def __init__(self, layer_ids: Iterable[int], cache: KVCache, places: Places) -> None:
        super().__init__(layers=[])
        both = zip(cache.layers[::2], cache.layers[1::2], strict=True)
        self.memories = dict(zip(layer_ids, both, strict=True))
        self.places = places

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *args: Any,  # noqa: ARG002, as the library passes them
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's keys and values, and read all of its slots: [num_reqs, num_heads, …]."""
        keys, values = self.memories[layer_idx]
        return self._exchange(keys, key_states), self._exchange(values, value_states)

    def _exchange(self, memory: Tensor, states: Tensor) -> Tensor:
        memory.flatten(0, 1).index_copy_(0, self.places.rows, states.transpose(1, 2).flatten(0, 1))
        return memory[self.places.slots, : self.places.num_positions].transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """How many positions are read."""
        return self.places.num_positions


Windows = Mapping[str, int | None]
"""Kind of layer, as transformers calls it -> how many positions a token sees; None for all."""


@frozen(eq=False, kw_only=True)
class LibraryModel(SlotMemory):
    """A `acceptor.core.ports.LanguageModel`.

    Attributes:
        network: a causal language model in evaluation mode, with eager or SDPA attention.
        norm: the final norm; None if the network does not call it `norm`.

    The other fields are those of `TransformerModel`.
    """

    network: Any
    shapes: Shapes
    windows: Windows
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    forward_name: str = field(default="transformers", init=False)
    layer_shapes: Sequence[tuple[int, int]] = derived(
        lambda model: [shape for both in model.shapes.values() for shape in both]
    )
    embedding: Tensor = derived(lambda model: model.network.get_input_embeddings().weight)
    norm: Any = derived(lambda model: getattr(model.network.base_model, "norm", None))
    lm_head: Any = derived(lambda model: model.network.get_output_embeddings())
    vocab_size: int = derived(lambda model: len(model.lm_head.weight))
    hidden_size: int = derived(lambda model: model.network.config.get_text_config().hidden_size)
    num_layers: int = derived(
        lambda model: model.network.config.get_text_config().num_hidden_layers
    )
    dtype: torch.dtype = derived(lambda model: model.network.dtype)
    device: torch.device = derived(lambda model: model.network.device)

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
        """Score tokens, see `TransformerModel.forward`, whose errors these are."""
        limits = self.vocab_size, self.max_model_len
        places = Places.of(token_ids, positions, slot_ids, cache, limits, max_position)
        check_integers("taps", taps, 0, self.num_layers)
        with _last_hidden(self.norm, wanted=self.num_layers in taps) as last:
            said = self.network(
                input_ids=token_ids,
                position_ids=positions,
                attention_mask=self.masks(places),
                past_key_values=StepCache(self.shapes, cache, places),
                use_cache=True,
                logits_to_keep=1 if last_only else 0,
                output_hidden_states=[tap for tap in taps if tap < self.num_layers] or False,
            )
        return Scores(
            said.logits,
            tuple(last[0] if tap == self.num_layers else said.hidden_states[tap] for tap in taps),
        )

    def masks(self, places: Places) -> Tensor | dict[str, Tensor]:
        """One mask for each kind of layer, as networks with several kinds expect."""
        masks = {kind: places.bias(one, self.dtype) for kind, one in self.windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))


@contextmanager
def _last_hidden(norm: Any, *, wanted: bool) -> Iterator[list[Tensor]]:
    """Collects the final norm's inputs; the library returns only its output."""
    seen: list[Tensor] = []
    if wanted and norm is None:
        raise UnavailableError("taps: expected a model whose final norm is called norm, got none")
    handle = wanted and norm.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        yield seen
    finally:
        if handle:
            handle.remove()
