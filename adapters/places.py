"""Where the tokens of a forward are written, and what each of them sees."""

import torch
from attrs import frozen
from torch import Tensor

from ..core.checks import check_integer, check_tensor
from ..core.errors import InvalidInputError
from .kv_cache import Slots, read_len


def check_tokens(
    token_ids: Tensor,
    positions: Tensor,
    slot_ids: Tensor | None,
    vocab_size: int,
    device: torch.device,
) -> None:
    """Raise `InvalidInputError` unless these are tokens and their places, as far as shapes tell.

    On a CPU token ids outside the vocabulary are an error, too.
    """
    check_tensor("token_ids", token_ids, (None, None), (torch.int64,), device)
    for dimension, size in enumerate(token_ids.shape):
        check_integer(f"token_ids.shape[{dimension}]", size, 1)
    if device.type == "cpu":
        lowest, highest = (int(bound) for bound in token_ids.aminmax())
        if lowest < 0 or highest >= vocab_size:
            raise InvalidInputError(
                f"token_ids: expected values in [0, {vocab_size}), got {lowest} to {highest}"
            )
    check_tensor("positions", positions, token_ids.shape, (torch.int64,), device)
    if slot_ids is not None:
        check_tensor("slot_ids", slot_ids, token_ids.shape[:1], (torch.int64,), device)


@frozen(eq=False, kw_only=True)
class Places:
    """The slots and positions of a forward.

    Attributes:
        positions: [num_reqs, num_tokens] int64.
        slot_ids: [num_reqs] int64.
        slots: the same, as a slice where that is known without waiting.
        num_positions: how many positions of them are read.
    """

    positions: Tensor
    slot_ids: Tensor
    slots: Slots
    num_positions: int

    @classmethod
    def of(
        cls,
        positions: Tensor,
        slot_ids: Tensor | None,
        all_slot_ids: Tensor,
        limit: int,
        max_position: int | None,
    ) -> "Places":
        """Look at them; without max_position a GPU, which is not asked, reads up to the limit.

        Args:
            positions: [num_reqs, num_tokens] int64.
            slot_ids: [num_reqs] int64; None means request i uses slot i.
            all_slot_ids: [num_slots] int64, those of the cache in order.
            limit: no position reaches it; a slot that was rounded up may have more than the model.
        """
        slots, slot_ids = _slots(slot_ids, len(positions), all_slot_ids)
        return cls(
            positions=positions,
            slot_ids=slot_ids,
            slots=slots,
            num_positions=_num_positions(positions, limit, max_position),
        )

    def rows(self, max_len: int) -> Tensor:
        """Which row of a layer's cache each token has: [num_reqs * num_tokens] int64."""
        return torch.add(self.positions, self.slot_ids[:, None], alpha=max_len).flatten()

    def unseen(self, all_positions: Tensor, window: int | None) -> Tensor:
        """Which keys each token may not look at.

        Args:
            all_positions: [at least num_positions] int64, counted from 0.
            window: how many positions a token sees, its own included; None for all.

        Returns:
            [num_reqs, 1, num_tokens, num_positions] bool.
        """
        queries, keys = self.positions[:, None, :, None], all_positions[: self.num_positions]
        unseen = keys > queries
        if window is not None:
            unseen |= keys <= queries - window
        return unseen


def _num_positions(positions: Tensor, limit: int, max_position: int | None) -> int:
    if max_position is not None:
        check_integer("max_position", max_position, 0, limit - 1)
        return read_len(max_position + 1, limit, positions.device)
    if positions.device.type != "cpu":
        return limit
    lowest, highest = (int(bound) for bound in positions.aminmax())
    if lowest < 0 or highest >= limit:
        raise InvalidInputError(
            f"positions: expected values in [0, {limit}), got {lowest} to {highest}"
        )
    return read_len(highest + 1, limit, positions.device)


def _slots(slot_ids: Tensor | None, num_reqs: int, all_slot_ids: Tensor) -> tuple[Slots, Tensor]:
    if slot_ids is None:
        check_integer("num_reqs without slot_ids", num_reqs, 1, len(all_slot_ids))
        return slice(num_reqs), all_slot_ids[:num_reqs]
    if slot_ids.device.type != "cpu":
        return slot_ids, slot_ids
    slots = slot_ids.tolist()
    for slot in slots:
        check_integer("slot_ids", slot, 0, len(all_slot_ids) - 1)
    if slots == list(range(slots[0], slots[0] + num_reqs)):
        return slice(slots[0], slots[0] + num_reqs), slot_ids
    return slot_ids, slot_ids
