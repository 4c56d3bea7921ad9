"""A static key/value cache addressed by slot and position.

Writing a position again replaces it, so rejecting a draft means advancing less.

A GPU's kernels are planned once per length, so lengths are rounded up there: for odd ones kernels
are compiled anew, and attention that copies slots is slower.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from attrs import frozen
from torch import Tensor

from ..core.checks import check_integer

Slots = slice | Tensor
SLOT_STEP, READ_STEP = 128, 256
"""A slot has a multiple of so many positions, and attention reads a multiple, or all there are."""


def slot_len(max_len: int, device: torch.device) -> int:
    """How many positions a slot gets that must have max_len."""
    return _rounded_up(max_len, SLOT_STEP) if rounds(device) else max_len


def read_len(num_filled: int, limit: int, device: torch.device) -> int:
    """How many positions are read to see the first num_filled, of limit ones that may be."""
    return min(_rounded_up(num_filled, READ_STEP), limit) if rounds(device) else num_filled


def rounds(device: torch.device) -> bool:
    """Whether lengths are rounded."""
    return device.type != "cpu"


def _rounded_up(length: int, step: int) -> int:
    return -(-length // step) * step


@frozen(eq=False)
class LayerCache:
    """Keys and values of one layer.

    Attributes:
        memory: [num_slots, max_len, 2 * num_kv_heads, head_dim], a position's keys before its
            values: what a step adds is written at once.
    """

    memory: Tensor

    @property
    def keys(self) -> Tensor:
        """[num_slots, max_len, num_kv_heads, head_dim], a view."""
        return self.memory[:, :, : self.memory.shape[2] // 2]

    @property
    def values(self) -> Tensor:
        """[num_slots, max_len, num_kv_heads, head_dim], a view."""
        return self.memory[:, :, self.memory.shape[2] // 2 :]

    @property
    def rows(self) -> Tensor:
        """[num_slots * max_len, 2 * num_kv_heads, head_dim], a view; see `Places.rows`."""
        return self.memory.flatten(0, 1)

    def read(self, slots: Slots, num_positions: int) -> tuple[Tensor, Tensor]:
        """The first positions of some slots, [num_reqs, num_kv_heads, num_positions, head_dim].

        Views when slots is a slice, gathered copies when it is a tensor.
        """
        keys, values = self.memory[slots, :num_positions].transpose(1, 2).chunk(2, 1)
        return keys, values


@frozen(eq=False)
class KVCache:
    """What a model remembers, per layer.

    Positions come before heads, unlike in the attention that reads them: a token's keys are then
    one contiguous row, and one index_copy_ writes a step of any batch.

    Attributes:
        layers: one cache each.
        slot_ids: [num_slots] int64, all slots in order.
    """

    layers: tuple[LayerCache, ...]
    slot_ids: Tensor

    @classmethod
    def allocate(
        cls,
        num_layers: int,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> "KVCache":
        """An empty cache; the shape is that of `LayerCache.memory`.

        Raises:
            InvalidInputError: num_slots or max_len is below 1.
        """
        check_integer("num_slots", shape[0], 1)
        check_integer("max_len", shape[1], 1)

        def empty() -> LayerCache:
            # Zeros, because positions not yet written are read and then masked: what is masked must
            # be finite, since 0 times NaN is NaN. Each layer's a tensor of its own: a compiler that
            # sees several views of one memory being written copies all of it.
            return LayerCache(torch.zeros(shape, dtype=dtype, device=device))

        slot_ids = torch.arange(shape[0], device=device)
        return cls(tuple(empty() for _ in range(num_layers)), slot_ids)

    @property
    def max_len(self) -> int:
        """How many positions each slot has."""
        return self.layers[0].memory.shape[1]

    def clear(self, slots: Sequence[int]) -> None:
        """Forget slots; needed before reuse only when a last sequence held NaN or infinity."""
        # Neighbours of all layers together: when many requests come at once, launches, and slices
        # to launch them with, are what it costs.
        parts = [slice(first, last + 1) for first, last in _neighbours(slots)]
        torch._foreach_zero_([layer.memory[part] for part in parts for layer in self.layers])


def _neighbours(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of slots that follow one another."""
    for _, run in groupby(enumerate(sorted(slots)), lambda placed: placed[1] - placed[0]):
        run_slots = [slot for _, slot in run]
        yield run_slots[0], run_slots[-1]
