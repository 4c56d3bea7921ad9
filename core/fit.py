"""Checks that a batch and its parameters belong together, without looking at values."""

from torch import Tensor

from .batch import SampleBatch, VerifyBatch
from .checks import check_integer, check_tensor
from .errors import InvalidInputError
from .sampling_tensors import SamplingTensors


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


def check_verify_fits(batch: VerifyBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless the parameters are for this batch."""
    _check_requests(batch.num_reqs, batch.target_logits, params)
    _check_counts(batch, params)
    _check_num_logprobs(batch.vocab_size, params)


def check_sample_fits(batch: SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless the parameters are for this batch."""
    _check_requests(batch.num_reqs, batch.logits, params)
    if batch.draft_index is None:
        _check_counts(batch, params)
        _check_num_logprobs(batch.logits.shape[1], params)


def _check_requests(num_reqs: int, logits: Tensor, params: SamplingTensors) -> None:
    check_params(params)
    name, entries = "params.seeds", params.seeds
    if params.slot_ids is not None:
        name, entries = "params.slot_ids", params.slot_ids
    check_tensor(name, entries, (num_reqs,), (entries.dtype,), logits.device)


def _check_counts(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> None:
    if params.penalties is not None and batch.token_counts is None:
        raise InvalidInputError(
            "token_counts: expected TokenCounts because a request has penalties, got None"
        )


def _check_num_logprobs(vocab_size: int, params: SamplingTensors) -> None:
    if params.num_logprobs is not None:
        check_integer("num_logprobs", params.num_logprobs, 0, vocab_size)
