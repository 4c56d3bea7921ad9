"""Checks that a call's arguments fit together, and memory for its results.

No check looks at values.
"""

from operator import attrgetter

import torch
from torch import Tensor

from .batch import SampleBatch, VerifyBatch
from .checks import check_contiguous, check_device, check_integer, check_kind, check_tensor
from .errors import InvalidInputError
from .output import Logprobs, Output, SampleOutput, VerifyOutput
from .policies.policy import Policy, reports_total_variation
from .sampling_tensors import SamplingTensors
from .tensor_fields import named_tensors

WORKSPACE_ALIGNMENT = 16
"""Bytes of a GPU's widest load."""


def empty_verify_output(
    batch: VerifyBatch,
    params: SamplingTensors,
    policy: Policy,
    device: torch.device | str | None = None,
) -> VerifyOutput:
    """Uninitialised memory for what `Sampler.verify` returns, where the batch is or elsewhere."""
    check_kind("batch", batch, VerifyBatch)
    check_params(params)
    check_policy(policy)
    num_reqs, shape = batch.num_reqs, (batch.num_reqs, batch.max_spec_len + 1)
    device = _device_of(batch, device)
    reports = reports_total_variation(policy)
    return VerifyOutput(
        token_ids=torch.empty(shape, dtype=torch.int64, device=device),
        num_accepted=torch.empty(num_reqs, dtype=torch.int32, device=device),
        status=torch.empty(num_reqs, dtype=torch.int32, device=device),
        logprobs=_logprobs(shape, params.num_logprobs, device),
        total_variation=torch.empty(shape, dtype=torch.float32, device=device) if reports else None,
    )


def empty_sample_output(
    batch: SampleBatch, params: SamplingTensors, device: torch.device | str | None = None
) -> SampleOutput:
    """Uninitialised memory for what `Sampler.sample` returns, where the batch is or elsewhere."""
    check_kind("batch", batch, SampleBatch)
    check_params(params)
    num_reqs, device = batch.num_reqs, _device_of(batch, device)
    num_logprobs = params.num_logprobs if batch.draft_index is None else None
    return SampleOutput(
        token_ids=torch.empty(num_reqs, dtype=torch.int64, device=device),
        status=torch.empty(num_reqs, dtype=torch.int32, device=device),
        logprobs=_logprobs((num_reqs, 1), num_logprobs, device),
    )


def check_verify_output(
    out: VerifyOutput, batch: VerifyBatch, params: SamplingTensors, policy: Policy
) -> None:
    """Raise `InvalidInputError` unless `out` is what `empty_verify_output` would allocate."""
    _check_output(out, empty_verify_output(batch, params, policy, "meta"), batch.positions.device)


def check_sample_output(out: SampleOutput, batch: SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless `out` is what `empty_sample_output` would allocate."""
    _check_output(out, empty_sample_output(batch, params, "meta"), batch.positions.device)


def check_workspace(workspace: Tensor, size: int, device: torch.device) -> None:
    """Raise `InvalidInputError` unless this is a workspace of at least `size` bytes.

    Args:
        workspace: [at least size] uint8, contiguous, 16-byte aligned, on the device.
        size: what `Sampler.verify_workspace_size` or `Sampler.sample_workspace_size` said.
        device: the batch's.
    """
    check_integer("size", size, 0)
    check_tensor("workspace", workspace, (None,), (torch.uint8,), device)
    check_integer("workspace.shape[0]", workspace.shape[0], size)
    check_contiguous("workspace", workspace)
    if workspace.data_ptr() % WORKSPACE_ALIGNMENT:
        raise InvalidInputError(
            f"workspace: expected an address that is a multiple of {WORKSPACE_ALIGNMENT}, "
            f"got {workspace.data_ptr():#x}"
        )


def _device_of(batch: VerifyBatch | SampleBatch, wanted: torch.device | str | None) -> torch.device:
    return batch.positions.device if wanted is None else check_device(wanted, any_type=True)


def _logprobs(
    shape: tuple[int, ...], num_logprobs: int | None, device: torch.device
) -> Logprobs | None:
    if num_logprobs is None:
        return None
    top = (*shape, num_logprobs)
    return Logprobs(
        emitted=torch.empty(shape, dtype=torch.float32, device=device),
        top_token_ids=torch.empty(top, dtype=torch.int64, device=device),
        top=torch.empty(top, dtype=torch.float32, device=device),
    )


def _check_output(out: Output, expected: Output, device: torch.device) -> None:
    check_kind("out", out, type(expected))
    for name in ("total_variation", "logprobs"):
        wanted, got = (getattr(output, name, None) for output in (expected, out))
        if (got is None) != (wanted is None):
            said = "None" if wanted is None else "memory for it"
            kind = "None" if got is None else type(got).__name__
            raise InvalidInputError(f"out.{name}: expected {said}, got {kind}")
    for path, like in named_tensors(expected):
        tensor = attrgetter(path)(out)
        check_tensor(f"out.{path}", tensor, like.shape, (like.dtype,), device)
        check_contiguous(f"out.{path}", tensor)


def check_params(params: object) -> None:
    """Raise `InvalidInputError` unless these are parameters of a batch."""
    if not isinstance(params, SamplingTensors):
        got = type(params).__name__
        raise InvalidInputError(f"params: expected SamplingTensors.stack([…]), got {got}")


def check_policy(policy: object) -> None:
    """Raise `InvalidInputError` unless this is an instance of a policy, not its class or name."""
    if isinstance(policy, type) or not hasattr(policy, "rule"):
        got = policy.__name__ if isinstance(policy, type) else repr(policy)
        raise InvalidInputError(f"policy: expected one such as Probabilistic(), got {got}")


def check_fits(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless the parameters are for this batch."""
    check_params(params)
    name, entries = "params.seeds", params.seeds
    if params.slot_ids is not None:
        name, entries = "params.slot_ids", params.slot_ids
    check_tensor(name, entries, (batch.num_reqs,), (entries.dtype,), batch.positions.device)
    if isinstance(batch, SampleBatch) and batch.draft_index is not None:
        # Draft draws use neither penalties nor logprobs.
        return
    if params.penalties is not None and batch.token_counts is None:
        raise InvalidInputError(
            "token_counts: expected TokenCounts because a request has penalties, got None"
        )
    if params.num_logprobs is not None:
        check_integer("num_logprobs", params.num_logprobs, 0, batch.vocab_size)
