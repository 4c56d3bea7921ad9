"""What engines have in other forms, as the tensors that batches take, and what they ask besides.

Logprobs of ids that a caller names come from what a verification has summed up already.
"""

import torch
from torch import Tensor

from .batch import PADDING_TOKEN_ID, VerifyBatch
from .checks import FLOATS, INTEGERS, check_integer, check_tensor, plain_number
from .errors import InvalidInputError
from .output import VerifyOutput
from .sampling_tensors import SamplingTensors


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


def chosen_logprobs(
    batch: VerifyBatch, params: SamplingTensors, output: VerifyOutput, token_ids: Tensor
) -> Tensor:
    """Raw logprobs of chosen ids at every emitted token, in nats.

    An emitted token's logit less its logprob is the row's log of the sum of exponentials, so
    that no row is read again.

    Args:
        batch, output: what was verified, and what came out.
        params: what it was verified with; every request asks for logprobs of raw logits.
        token_ids: [num_reqs, n] int, each request's ids, in the vocabulary.

    Returns:
        [num_reqs, max_spec_len + 1, n] float32; NaN where nothing was emitted, and for requests
        that ask for processed logprobs.

    Raises:
        InvalidInputError: the output has no logprobs, or wrong shape, dtype or device.
    """
    if output.logprobs is None:
        raise InvalidInputError("logprobs: expected SamplingParams.logprobs of 0 or more, got None")
    num_reqs, num_tokens = output.token_ids.shape
    check_tensor("token_ids", token_ids, (num_reqs, None), INTEGERS, output.token_ids.device)
    places = torch.arange(num_tokens, device=token_ids.device)
    rows = batch.cu_num_logits[:-1, None].long() + places
    rows.clamp_(max=len(batch.target_logits) - 1)
    is_raw = ~params.by_request().logprobs_processed[:, None]
    known = (output.token_ids >= 0) & is_raw
    emitted = batch.target_logits[rows, output.token_ids.clamp(min=0)].float()
    log_total = torch.where(known, emitted - output.logprobs.emitted, torch.nan)
    chosen = batch.target_logits[rows[..., None], token_ids[:, None].long()].float()
    return chosen - log_total[..., None]
