"""Which draft id a target id belongs to; refuses maps that are not one to one, by contract."""

import torch
from torch import Tensor


def inverse_map(draft_to_target: Tensor | None, target_vocab_size: int) -> Tensor | None:
    """The draft id of every target id, -1 where it has none: [target_vocab_size] int32."""
    if draft_to_target is None:
        return None
    device = draft_to_target.device
    inverse = torch.full((target_vocab_size,), -1, dtype=torch.int32, device=device)
    draft_ids = torch.arange(draft_to_target.shape[0], dtype=torch.int32, device=device)
    return inverse.scatter_(0, draft_to_target, draft_ids)
