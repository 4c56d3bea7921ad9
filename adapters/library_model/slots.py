"""A static cache of slots, in the shape that transformers' models write to and read from.

Sliding layers keep all positions, too: what a rejected draft has pushed out of a window would
otherwise be lost.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from transformers import Cache

from ..places import Places

Shapes = Mapping[int, tuple[tuple[int, int], tuple[int, int]]]
"""Layer -> (number of heads, size of a head) of its keys and of its values."""


@frozen(eq=False, kw_only=True)
class SlotMemory:
    """What a model remembers.

    Attributes:
        layers: layer -> its keys and its values, [num_slots, max_len, num_heads, head_dim] each;
            only of the layers that remember something of their own.
        slot_ids: [num_slots] int64, all slots in order.
        max_len: how many positions each slot has.
    """

    layers: Mapping[int, tuple[Tensor, Tensor]]
    slot_ids: Tensor
    max_len: int

    @classmethod
    def allocate(
        cls, shapes: Shapes, num_slots: int, max_len: int, dtype: torch.dtype, device: torch.device
    ) -> "SlotMemory":
        """An empty cache; zeros, since what is masked must be finite."""

        def empty(shape: tuple[int, int]) -> Tensor:
            return torch.zeros((num_slots, max_len, *shape), dtype=dtype, device=device)

        layers = {layer: (empty(keys), empty(values)) for layer, (keys, values) in shapes.items()}
        slot_ids = torch.arange(num_slots, device=device)
        return cls(layers=layers, slot_ids=slot_ids, max_len=max_len)

    def clear(self, slot_ids: Sequence[int]) -> None:
        """Forget slots."""
        for memory in self.layers.values():
            for tensor in memory:
                tensor[list(slot_ids)] = 0


class StepCache(Cache):  # type: ignore[misc]  # transformers is not typed
    """A `SlotMemory` as one forward sees it."""

    def __init__(self, memory: SlotMemory, places: Places) -> None:
        super().__init__(layers=[])
        self.memory = memory
        self.places = places
        self.rows = places.rows(memory.max_len)

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *args: Any,  # noqa: ARG002, as the library passes them
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's keys and values, and read all of its slots: [num_reqs, num_heads, …]."""
        keys, values = self.memory.layers[layer_idx]
        return self._exchange(keys, key_states), self._exchange(values, value_states)

    def _exchange(self, memory: Tensor, states: Tensor) -> Tensor:
        memory.flatten(0, 1).index_copy_(0, self.rows, states.transpose(1, 2).flatten(0, 1))
        return memory[self.places.slots, : self.places.num_positions].transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """How many positions are read."""
        return self.places.num_positions
