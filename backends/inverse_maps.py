"""From target ids back to draft ids, computed once for each map while it lives."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


class InverseMaps:
    """Inverses of the maps seen so far, each made once. A map must not be written to later."""

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def of(self, draft_to_target: Tensor | None, target_vocab_size: int) -> Tensor | None:
        """The draft id of every target id, -1 where it has none: [target_vocab_size] int32."""
        if draft_to_target is None:
            return None
        of_map = self._known.setdefault(draft_to_target, {})
        if target_vocab_size not in of_map:
            of_map[target_vocab_size] = inverse_map(draft_to_target, target_vocab_size)
        inverse: Tensor = of_map[target_vocab_size]
        return inverse


def inverse_map(draft_to_target: Tensor, target_vocab_size: int) -> Tensor:
    """The inverse of a map that is one to one, by contract."""
    device = draft_to_target.device
    inverse = torch.full((target_vocab_size,), -1, dtype=torch.int32, device=device)
    draft_ids = torch.arange(draft_to_target.shape[0], dtype=torch.int32, device=device)
    return inverse.scatter_(0, draft_to_target, draft_ids)
