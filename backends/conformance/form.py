"""Whether an output has the shapes, dtypes and devices of the contract; refuses to read values."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Fly, Policy, RelaxedTopN, Typical
from ...core.sampling_tensors import SamplingTensors
from .findings import Difference


def verify_form(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, output: VerifyOutput
) -> Iterator[Difference]:
    """What is wrong with the form of a verification's output."""
    num_reqs, num_tokens = batch.num_reqs, batch.max_spec_len + 1
    device = batch.target_logits.device
    yield from _tensor("token_ids", output.token_ids, (num_reqs, num_tokens), torch.int64, device)
    yield from _tensor("num_accepted", output.num_accepted, (num_reqs,), torch.int32, device)
    yield from _tensor("status", output.status, (num_reqs,), torch.int32, device)
    yield from _logprobs(output.logprobs, (num_reqs, num_tokens), params.num_logprobs, device)
    if not isinstance(policy, Typical | RelaxedTopN | Fly):
        yield from _absent("total_variation", output.total_variation)
    else:
        caused = output.total_variation
        yield from _tensor("total_variation", caused, (num_reqs, num_tokens), torch.float32, device)


def sample_form(
    batch: SampleBatch, params: SamplingTensors, output: SampleOutput
) -> Iterator[Difference]:
    """What is wrong with the form of a draw's output."""
    device, shape = batch.logits.device, (batch.num_reqs,)
    yield from _tensor("token_ids", output.token_ids, shape, torch.int64, device)
    yield from _tensor("status", output.status, shape, torch.int32, device)
    top_n = params.num_logprobs if batch.draft_index is None else None
    yield from _logprobs(output.logprobs, (batch.num_reqs, 1), top_n, device)


def _logprobs(
    logprobs: Logprobs | None, shape: tuple[int, int], top_n: int | None, device: torch.device
) -> Iterator[Difference]:
    if top_n is None:
        yield from _absent("logprobs", logprobs)
    elif logprobs is None:
        yield _malformed("logprobs", "Logprobs", "None")
    else:
        wide = (*shape, top_n)
        yield from _tensor("logprobs.emitted", logprobs.emitted, shape, torch.float32, device)
        yield from _tensor("logprobs.top", logprobs.top, wide, torch.float32, device)
        yield from _tensor(
            "logprobs.top_token_ids", logprobs.top_token_ids, wide, torch.int64, device
        )


def _tensor(
    name: str, tensor: object, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Iterator[Difference]:
    expected = f"{dtype} {list(shape)} on {device}"
    if not isinstance(tensor, Tensor):
        yield _malformed(name, expected, type(tensor).__name__)
    elif (tuple(tensor.shape), tensor.dtype, tensor.device) != (shape, dtype, device):
        yield _malformed(name, expected, f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}")


def _absent(name: str, value: object) -> Iterator[Difference]:
    if value is not None:
        yield _malformed(name, "None", type(value).__name__)


def _malformed(name: str, expected: str, got: str) -> Difference:
    return Difference(-1, -1, f"form of {name}", expected, got, float("inf"))
