"""Inverts `draft_to_target` maps; each is checked and inverted once in its lifetime."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..core.errors import InvalidInputError


class InverseMaps:
    """The inverses of all maps seen so far. A map must not be written to later."""

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def of(self, draft_to_target: Tensor | None, target_vocab_size: int) -> Tensor | None:
        """The draft id of every target id, -1 where it has none: [target_vocab_size] int32.

        A new map makes this wait for the device. During the capture of a CUDA graph it cannot wait:
        the map is then not checked, and it is inverted in every run of the graph.
        """
        if draft_to_target is None:
            return None
        of_map = self._known.get(draft_to_target, {})
        if target_vocab_size in of_map:
            known: Tensor = of_map[target_vocab_size]
            return known
        if draft_to_target.is_cuda and torch.cuda.is_current_stream_capturing():
            return inverse_map(draft_to_target, target_vocab_size)
        check_map(draft_to_target, target_vocab_size)
        self._known.setdefault(draft_to_target, of_map)
        inverse = of_map[target_vocab_size] = inverse_map(draft_to_target, target_vocab_size)
        return inverse


def check_map(draft_to_target: Tensor, target_vocab_size: int) -> None:
    """Check, waiting for the device, that a map holds ids of the target, each at most once."""
    ids = draft_to_target.sort().values
    outside = ids[(ids < 0) | (ids >= target_vocab_size)]
    if len(outside):
        raise InvalidInputError(
            f"draft_to_target: expected integers in [0, {target_vocab_size - 1}], "
            f"got {int(outside[0])}"
        )
    twice = ids[1:][ids.diff() == 0]
    if len(twice):
        raise InvalidInputError(
            "draft_to_target: expected each target id once, not EAGLE's offsets "
            f"(target_ids_from_offsets makes ids of them), got {int(twice[0])} twice"
        )


def inverse_map(draft_to_target: Tensor, target_vocab_size: int) -> Tensor:
    """The inverse of a map, which the caller promises is one-to-one."""
    device = draft_to_target.device
    inverse = torch.full((target_vocab_size,), -1, dtype=torch.int32, device=device)
    draft_ids = torch.arange(draft_to_target.shape[0], dtype=torch.int32, device=device)
    return inverse.scatter_(0, draft_to_target, draft_ids)
