"""Converts what engines hold (offsets, flat drafts, probabilities) into the tensors of a batch.

`chosen_logprobs` adds logprobs of ids that a caller names to a finished verification.
"""

import torch
from torch import Tensor

from .batch import PADDING_TOKEN_ID, VerifyBatch
from .call_memory import check_fits
from .checks import (
    FLOATS,
    INTEGERS,
    MAX_INT32,
    check_integer,
    check_integers,
    check_kind,
    check_tensor,
)
from .errors import InvalidInputError
from .output import VerifyOutput
from .sampling_tensors import SamplingTensors


def target_ids_from_offsets(offsets: Tensor) -> Tensor:
    """Make `draft_to_target` from a checkpoint's offsets, such as EAGLE-3's `d2t`.

    Args:
        offsets: [draft_vocab_size] int, target id minus draft id.

    Returns:
        [draft_vocab_size] int64. Keep it, because samplers check every tensor that is new to them.

    Raises:
        InvalidInputError: wrong shape or dtype.
    """
    check_tensor("offsets", offsets, (None,), INTEGERS)
    return torch.arange(len(offsets), device=offsets.device) + offsets


def draft_rows(flat: Tensor, cu_num_logits: Tensor, max_spec_len: int) -> Tensor:
    """Make `draft_token_ids` from drafts that are stored in one flat tensor.

    Args:
        flat: [num_draft_tokens] int, request by request.
        cu_num_logits: [num_reqs + 1] int, as in `VerifyBatch`.
        max_spec_len: the longest draft.

    Returns:
        [num_reqs, max_spec_len] int. Samplers do not read the entries after a request's draft,
        whatever they hold. Nothing waits for the device.

    Raises:
        InvalidInputError: wrong shape, dtype or device.
    """
    check_tensor("draft_token_ids", flat, (None,), INTEGERS)
    check_tensor("cu_num_logits", cu_num_logits, (None,), INTEGERS, flat.device)
    check_integer("cu_num_logits.shape[0]", cu_num_logits.shape[0], 1)
    check_integers("max_spec_len", (max_spec_len,), 0, MAX_INT32)
    num_reqs = cu_num_logits.shape[0] - 1
    starts = cu_num_logits[:-1] - torch.arange(num_reqs, device=flat.device)
    places = starts[:, None] + torch.arange(max_spec_len, device=flat.device)
    if not len(flat):
        return torch.full_like(places, PADDING_TOKEN_ID)
    return flat[places.clamp(0, len(flat) - 1)]


def logits_from_probs(probs: Tensor) -> Tensor:
    """Make `draft_logits` from a draft model's probabilities.

    If they include temperature and filters already, set `SamplingParams.draft` to `Recipe()`, so
    that these are not applied twice.

    Args:
        probs: [..., draft_vocab_size] floats that draft tokens were drawn from; rows need not sum
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

    An emitted token's logit minus its logprob is the row's log-sum-exp, so no row is summed again.

    Args:
        batch, output: a verified batch, and its output.
        params: the parameters it was verified with; every request asks for raw logprobs.
        token_ids: [num_reqs, n] int, each request's ids, in the vocabulary.

    Returns:
        [num_reqs, max_spec_len + 1, n] float32; NaN where nothing was emitted, and for requests
        that ask for processed logprobs.

    Raises:
        InvalidInputError: the output has no logprobs, these do not belong together, or wrong shape,
            dtype or device.
    """
    check_kind("batch", batch, VerifyBatch)
    check_kind("params", params, SamplingTensors)
    check_kind("output", output, VerifyOutput)
    if output.logprobs is None:
        raise InvalidInputError("logprobs: expected SamplingParams.logprobs of 0 or more, got None")
    num_reqs, num_tokens = batch.num_reqs, batch.max_spec_len + 1
    device = batch.target_logits.device
    check_fits(batch, params)
    check_tensor("output.token_ids", output.token_ids, (num_reqs, num_tokens), INTEGERS, device)
    check_tensor("token_ids", token_ids, (num_reqs, None), INTEGERS, device)
    places = torch.arange(num_tokens, device=token_ids.device)
    rows = batch.cu_num_logits[:-1, None].long() + places
    rows.clamp_(max=len(batch.target_logits) - 1)
    is_raw = ~params.by_request().logprobs_processed[:, None]
    known = (output.token_ids >= 0) & is_raw
    emitted = batch.target_logits[rows, output.token_ids.clamp(min=0)].float()
    log_total = torch.where(known, emitted - output.logprobs.emitted, torch.nan)
    chosen = batch.target_logits[rows[..., None], token_ids[:, None].long()].float()
    return chosen - log_total[..., None]
