"""Logprobs of ids that a caller names, from what a verification has summed up already."""

import torch
from torch import Tensor

from .batch import VerifyBatch
from .checks import INTEGERS, check_tensor
from .errors import InvalidInputError
from .output import VerifyOutput
from .sampling_tensors import SamplingTensors


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
