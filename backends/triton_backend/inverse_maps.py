"""From target ids back to draft ids, once per map; refuses to outlive the map it belongs to."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


class InverseMaps:
    """The inverses of the draft vocabularies seen so far. A map must not be written to later."""

    def __init__(self) -> None:
        self._inverses: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def of(self, id_map: Tensor | None, target_vocab_size: int) -> Tensor | None:
        """[target_vocab_size] int32, the draft id of each target id or -1; None for no map."""
        if id_map is None:
            return None
        known = self._inverses.setdefault(id_map, {})
        if target_vocab_size not in known:
            known[target_vocab_size] = _invert(id_map, target_vocab_size)
        inverse: Tensor = known[target_vocab_size]
        return inverse


def _invert(id_map: Tensor, target_vocab_size: int) -> Tensor:
    inverse = torch.full((target_vocab_size,), -1, dtype=torch.int32, device=id_map.device)
    draft_ids = torch.arange(len(id_map), dtype=torch.int32, device=id_map.device)
    return inverse.index_copy_(0, id_map, draft_ids)
