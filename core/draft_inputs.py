"""What draft models keep in other forms, as the tensors that batches take."""

import torch
from torch import Tensor

from .batch import PADDING_TOKEN_ID
from .checks import FLOATS, INTEGERS, check_integer, check_tensor, plain_number


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


def draft_rows(flat: Tensor, cu_num_logits: Tensor, max_spec_len: int) -> Tensor:
    """The `draft_token_ids` of an engine whose drafts lie one behind the other.

    Args:
        flat: [num_draft_tokens] int, request by request.
        cu_num_logits: [num_reqs + 1] int, as in `VerifyBatch`.
        max_spec_len: the longest draft.

    Returns:
        [num_reqs, max_spec_len] int; what stands behind a request's draft belongs to nobody and is
        not read. Nothing waits for the device.

    Raises:
        InvalidInputError: wrong shape, dtype or device.
    """
    check_tensor("draft_token_ids", flat, (None,), INTEGERS)
    check_tensor("cu_num_logits", cu_num_logits, (None,), INTEGERS, flat.device)
    check_integer("cu_num_logits.shape[0]", cu_num_logits.shape[0], 1)
    check_integer("max_spec_len", plain_number(max_spec_len), 0)
    num_reqs = cu_num_logits.shape[0] - 1
    starts = cu_num_logits[:-1] - torch.arange(num_reqs, device=flat.device)
    places = starts[:, None] + torch.arange(max_spec_len, device=flat.device)
    if not len(flat):
        return torch.full_like(places, PADDING_TOKEN_ID)
    return flat[places.clamp(0, len(flat) - 1)]


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
