"""The memory of a call: outputs to allocate, and checks of outputs and workspaces from a caller."""

from collections.abc import Mapping
from operator import attrgetter

import torch
from torch import Tensor

from .batch import SampleBatch, VerifyBatch
from .checks import check_contiguous, check_integer, check_tensor
from .errors import InvalidInputError
from .fit import check_params, check_policy
from .output import Logprobs, SampleOutput, VerifyOutput
from .policies import Policy, reports_total_variation
from .sampling_tensors import SamplingTensors

WORKSPACE_ALIGNMENT = 16
"""In bytes: the widest load of a GPU."""

Shape = tuple[int, ...]
Forms = Mapping[str, tuple[Shape, torch.dtype]]
"""The shape and dtype of every tensor of an output, by its path there, such as "logprobs.top"."""

_LOGPROBS = ("logprobs.emitted", "logprobs.top_token_ids", "logprobs.top")


def verify_forms(
    num_reqs: int, max_spec_len: int, num_logprobs: int | None, policy: Policy
) -> Forms:
    """What `Sampler.verify` returns for a batch of this size."""
    shape = (num_reqs, max_spec_len + 1)
    forms: dict[str, tuple[Shape, torch.dtype]] = {
        "token_ids": (shape, torch.int64),
        "num_accepted": ((num_reqs,), torch.int32),
        "status": ((num_reqs,), torch.int32),
        **_logprobs_forms(shape, num_logprobs),
    }
    if reports_total_variation(policy):
        forms["total_variation"] = (shape, torch.float32)
    return forms


def sample_forms(num_reqs: int, num_logprobs: int | None) -> Forms:
    """What `Sampler.sample` returns; `num_logprobs` is None for a draft draw."""
    return {
        "token_ids": ((num_reqs,), torch.int64),
        "status": ((num_reqs,), torch.int32),
        **_logprobs_forms((num_reqs, 1), num_logprobs),
    }


def empty_verify_output(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy
) -> VerifyOutput:
    """Uninitialised memory for everything that `Sampler.verify` returns, on the batch's device."""
    tensors = _empty(_verify_forms_of(batch, params, policy), batch.target_logits.device)
    return VerifyOutput(
        token_ids=tensors["token_ids"],
        num_accepted=tensors["num_accepted"],
        status=tensors["status"],
        logprobs=_logprobs_of(tensors),
        total_variation=tensors.get("total_variation"),
    )


def empty_sample_output(batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
    """Uninitialised memory for everything that `Sampler.sample` returns, on the batch's device."""
    tensors = _empty(_sample_forms_of(batch, params), batch.logits.device)
    return SampleOutput(tensors["token_ids"], tensors["status"], _logprobs_of(tensors))


def check_verify_output(
    out: VerifyOutput, batch: VerifyBatch, params: SamplingTensors, policy: Policy
) -> None:
    """Raise `InvalidInputError` unless `out` is what `empty_verify_output` would allocate."""
    _check_output(out, _verify_forms_of(batch, params, policy), batch.target_logits.device)


def check_sample_output(out: SampleOutput, batch: SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless `out` is what `empty_sample_output` would allocate."""
    _check_output(out, _sample_forms_of(batch, params), batch.logits.device)


def check_workspace(workspace: Tensor, size: int, device: torch.device) -> None:
    """Raise `InvalidInputError` unless this is a workspace of at least `size` bytes.

    Args:
        workspace: [at least size] uint8, contiguous, 16-byte aligned, on the device.
        size: what `Sampler.verify_workspace_size` or `Sampler.sample_workspace_size` said.
        device: the batch's.
    """
    check_tensor("workspace", workspace, (None,), (torch.uint8,), device)
    check_integer("workspace.shape[0]", workspace.shape[0], size)
    check_contiguous(workspace=workspace)
    if workspace.data_ptr() % WORKSPACE_ALIGNMENT:
        raise InvalidInputError(
            f"workspace: expected an address that is a multiple of {WORKSPACE_ALIGNMENT}, "
            f"got {workspace.data_ptr():#x}"
        )


def _verify_forms_of(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Forms:
    check_params(params)
    check_policy(policy)
    return verify_forms(batch.num_reqs, batch.max_spec_len, params.num_logprobs, policy)


def _sample_forms_of(batch: SampleBatch, params: SamplingTensors) -> Forms:
    check_params(params)
    return sample_forms(batch.num_reqs, params.num_logprobs if batch.draft_index is None else None)


def _logprobs_forms(shape: Shape, num_logprobs: int | None) -> Forms:
    if num_logprobs is None:
        return {}
    top = (*shape, num_logprobs)
    forms = ((shape, torch.float32), (top, torch.int64), (top, torch.float32))
    return dict(zip(_LOGPROBS, forms, strict=True))


def _empty(forms: Forms, device: torch.device) -> dict[str, Tensor]:
    return {
        path: torch.empty(shape, dtype=dtype, device=device)
        for path, (shape, dtype) in forms.items()
    }


def _logprobs_of(tensors: Mapping[str, Tensor]) -> Logprobs | None:
    if _LOGPROBS[0] not in tensors:
        return None
    return Logprobs(*(tensors[path] for path in _LOGPROBS))


def _check_output(out: VerifyOutput | SampleOutput, forms: Forms, device: torch.device) -> None:
    _check_presence("logprobs", out.logprobs, _LOGPROBS[0] in forms)
    if isinstance(out, VerifyOutput):
        _check_presence("total_variation", out.total_variation, "total_variation" in forms)
    for path, (shape, dtype) in forms.items():
        tensor = attrgetter(path)(out)
        check_tensor(f"out.{path}", tensor, shape, (dtype,), device)
        check_contiguous(**{f"out.{path}": tensor})


def _check_presence(name: str, part: object, wanted: object) -> None:
    if (part is not None) != wanted:
        expected = "memory for it" if wanted else "None"
        got = "None" if part is None else type(part).__name__
        raise InvalidInputError(f"out.{name}: expected {expected}, got {got}")
