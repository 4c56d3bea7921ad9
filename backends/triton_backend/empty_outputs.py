"""Outputs to be written to, where the caller brings none; refuses to fill them."""

import torch

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors


def empty_verify_output(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy
) -> VerifyOutput:
    """What `verify` returns."""
    device = batch.target_logits.device
    shape = (batch.num_reqs, batch.max_spec_len + 1)
    return VerifyOutput(
        token_ids=torch.empty(shape, dtype=torch.int64, device=device),
        num_accepted=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        status=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        logprobs=_empty_logprobs(shape, params, device),
        total_variation=None
        if policy.lossless or not policy.uses_draft_probs
        else torch.empty(shape, device=device),
    )


def empty_sample_output(batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
    """What `sample` returns."""
    num_reqs, device = batch.num_reqs, batch.logits.device
    return SampleOutput(
        token_ids=torch.empty(num_reqs, dtype=torch.int64, device=device),
        status=torch.empty(num_reqs, dtype=torch.int32, device=device),
        logprobs=_empty_logprobs((num_reqs, 1), params, device)
        if batch.draft_index is None
        else None,
    )


def _empty_logprobs(
    shape: tuple[int, int], params: SamplingTensors, device: torch.device
) -> Logprobs | None:
    if params.num_logprobs is None:
        return None
    top_shape = (*shape, params.num_logprobs)
    return Logprobs(
        emitted=torch.empty(shape, device=device),
        top_token_ids=torch.empty(top_shape, dtype=torch.int64, device=device),
        top=torch.empty(top_shape, device=device),
    )
