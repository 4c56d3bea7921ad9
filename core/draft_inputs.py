"""What draft models keep in other forms, as the tensors that batches take."""

import torch
from torch import Tensor

from .checks import FLOATS, INTEGERS, check_tensor


def target_ids_from_offsets(offsets: Tensor) -> Tensor:
    """The `draft_to_target` of a checkpoint that holds offsets, as EAGLE-3's `d2t` does.

    Args:
        offsets: [draft_vocab_size] int, target id less draft id.

    Returns:
        [draft_vocab_size] int64, to be kept: every new tensor is checked when it is first seen.

    Raises:
        InvalidInputError: wrong shape or dtype.
    """
    check_tensor("offsets", offsets, (None,), INTEGERS)
    return torch.arange(len(offsets), device=offsets.device) + offsets


def logits_from_probs(probs: Tensor) -> Tensor:
    """The `draft_logits` of a draft model that hands out probabilities.

    Where temperature and filters are already in them, `SamplingParams.draft` is `Recipe()`, so that
    they are not applied again.

    Args:
        probs: [..., draft_vocab_size] floats, what draft tokens were drawn from; rows need not sum
            to 1.

    Returns:
        [..., draft_vocab_size] float32, -inf where the probability is 0.

    Raises:
        InvalidInputError: wrong dtype.
    """
    check_tensor("probs", probs, (None,) * getattr(probs, "ndim", 0), FLOATS)
    return probs.float().log()
