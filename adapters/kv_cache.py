"""A static key/value cache addressed by slot and position, and the places of a forward's tokens.

Writing a position again replaces it, so rejecting a draft means advancing less.

On a GPU lengths are rounded up: kernels are compiled once per length, and attention that copies
slots is slower at odd ones.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from attrs import frozen
from torch import Tensor

from ..core.checks import check_integer, check_tensor
from ..core.errors import InvalidInputError
from .error_text import unfit

SLOT_STEP, READ_STEP = 128, 256
"""Slots have a multiple of this many positions, and attention reads a multiple, or all."""


def rounded_up(length: int, step: int, device: torch.device) -> int:
    """Round a length up to one that suits the device's kernels."""
    return -(-length // step) * step if device.type != "cpu" else length


@frozen(eq=False)
class KVCache:
    """The keys and values of every layer.

    Positions come before heads, unlike in the attention that reads them: a token's keys are then
    one contiguous row, and one index_copy_ writes a step of any batch.

    Attributes:
        layers: [num_slots, max_len, 2 * num_kv_heads, head_dim] each, a position's keys before its
            values, so that a step writes both at once. Models of the transformers library, whose
            values may have another size, have one tensor for keys and one for values.
        slot_ids: [num_slots] int64, all slots in order.
    """

    layers: tuple[Tensor, ...]
    slot_ids: Tensor

    @classmethod
    def allocate(
        cls,
        shapes: Sequence[tuple[int, int]],
        num_slots: int,
        max_len: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> "KVCache":
        """An empty cache, see `SlotMemory.new_cache`."""
        check_integer("num_slots", num_slots, 1)
        rows = num_slots, rounded_up(max_len, SLOT_STEP, device)
        # Zeros, because attention reads unwritten positions and multiplies them by 0: they must be
        # finite, since 0 times NaN is NaN.
        layers = (torch.zeros((*rows, *shape), dtype=dtype, device=device) for shape in shapes)
        return cls(tuple(layers), torch.arange(num_slots, device=device))

    @property
    def max_len(self) -> int:
        """How many positions each slot has."""
        return self.layers[0].shape[1]

    def clear(self, slots: Sequence[int]) -> None:
        """Forget slots."""
        parts = [layer[slot] for slot in slots for layer in self.layers]
        torch._foreach_zero_(parts)


class SlotMemory:
    """The caches of a `acceptor.core.ports.SlotModel`.

    Attributes:
        layer_shapes: the shape that each layer caches per token, the last dimensions of
            `KVCache.layers`.

    The others are those of `SlotModel`.
    """

    layer_shapes: Sequence[tuple[int, int]]
    max_model_len: int
    dtype: torch.dtype
    device: torch.device

    def new_cache(self, num_slots: int, max_len: int) -> KVCache:
        """Allocate max_len positions, or a few more, in each of num_slots slots.

        Raises:
            InvalidInputError: num_slots is below 1, or max_len not in [1, max_model_len].
        """
        check_integer("max_len", max_len, 1, self.max_model_len)
        return KVCache.allocate(self.layer_shapes, num_slots, max_len, self.dtype, self.device)

    def clear(self, cache: KVCache, slot_ids: Sequence[int]) -> None:
        """Forget slots; needed before reuse only if their sequences left NaN or infinity."""
        cache.clear(slot_ids)


def _check_values(name: str, values: Tensor, limit: int) -> int:
    """Raise `InvalidInputError` unless all are in [0, limit); return the largest."""
    lowest, highest = (int(bound) for bound in values.aminmax())
    if lowest < 0 or highest >= limit:
        got = f"{lowest} to {highest}"
        raise unfit(name, f"values in [0, {limit})", got, InvalidInputError)
    return highest


@frozen(eq=False)
class Places:
    """The slots and positions of a forward.

    Attributes:
        positions: [num_reqs, num_tokens] int64.
        slot_ids: [num_reqs] int64.
        num_positions: how many positions of each slot are read.
        max_len: how many positions a slot has.
    """

    positions: Tensor
    slot_ids: Tensor
    num_positions: int
    max_len: int

    @classmethod
    def of(
        cls,
        token_ids: Tensor,
        positions: Tensor,
        slot_ids: Tensor | None,
        cache: KVCache,
        limits: tuple[int, int],
        max_position: int | None,
    ) -> "Places":
        """Check tokens and find their places; without max_position a GPU reads whole slots.

        Args:
            token_ids, positions: [num_reqs, num_tokens] int64.
            slot_ids: [num_reqs] int64; None means request i uses slot i.
            cache: the cache that is written.
            limits: the ends of ids and of positions; slots that were rounded up may be longer.
            max_position: the highest of the positions, if it is known.

        Raises:
            InvalidInputError: wrong shape, dtype or device; on a CPU also an id outside the
                vocabulary, or a slot or position outside the cache.
        """
        device = cache.slot_ids.device
        check_tensor("token_ids", token_ids, (None, None), (torch.int64,), device)
        for dimension, size in enumerate(token_ids.shape):
            check_integer(f"token_ids.shape[{dimension}]", size, 1)
        check_tensor("positions", positions, token_ids.shape, (torch.int64,), device)
        if slot_ids is not None:
            check_tensor("slot_ids", slot_ids, token_ids.shape[:1], (torch.int64,), device)
        if device.type == "cpu":
            _check_values("token_ids", token_ids, limits[0])
        slot_ids = _slot_ids(slot_ids, len(positions), cache.slot_ids)
        limit = min(cache.max_len, limits[1])
        return cls(
            positions=positions,
            slot_ids=slot_ids,
            num_positions=_num_positions(positions, limit, max_position),
            max_len=cache.max_len,
        )

    @cached_property
    def slots(self) -> Tensor | slice:
        """The slots; on a CPU a slice if they are adjacent, which is read without a copy."""
        if self.slot_ids.device.type != "cpu" or bool((self.slot_ids.diff() != 1).any()):
            return self.slot_ids
        first = int(self.slot_ids[0])
        return slice(first, first + len(self.slot_ids))

    @cached_property
    def rows(self) -> Tensor:
        """The row of each token in a layer's cache: [num_reqs * num_tokens] int64."""
        return torch.add(self.positions, self.slot_ids[:, None], alpha=self.max_len).flatten()

    def bias(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """The bias on scores: 0 where a token may look, -inf elsewhere.

        Args:
            window: how many positions a token sees, its own included; None for all.
            dtype: the result's.

        Returns:
            [num_reqs, 1, num_tokens, num_positions].
        """
        queries = self.positions[:, None, :, None]
        keys = torch.arange(self.num_positions, device=queries.device)
        unseen = keys > queries
        if window is not None:
            unseen |= keys <= queries - window
        # Not a boolean mask, which attention would turn into this in every layer.
        bias = torch.zeros(unseen.shape, dtype=dtype, device=queries.device)
        return bias.masked_fill_(unseen, -torch.inf)


def _num_positions(positions: Tensor, limit: int, max_position: int | None) -> int:
    if max_position is not None:
        check_integer("max_position", max_position, 0, limit - 1)
    elif positions.device.type != "cpu":
        return limit
    else:
        max_position = _check_values("positions", positions, limit)
    return min(rounded_up(max_position + 1, READ_STEP, positions.device), limit)


def _slot_ids(slot_ids: Tensor | None, num_reqs: int, all_slot_ids: Tensor) -> Tensor:
    if slot_ids is None:
        check_integer("num_reqs without slot_ids", num_reqs, 1, len(all_slot_ids))
        return all_slot_ids[:num_reqs]
    if slot_ids.device.type == "cpu":
        for slot_id in slot_ids.tolist():
            check_integer("slot_ids", slot_id, 0, len(all_slot_ids) - 1)
    return slot_ids
