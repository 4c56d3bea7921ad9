"""Whether a batch and its parameters belong together; refuses to look at values."""

from .batch import SampleBatch, VerifyBatch
from .checks import check_tensor
from .errors import InvalidInputError
from .sampling_tensors import SamplingTensors


def check_verify_fits(batch: VerifyBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless the parameters are for this batch."""
    check_tensor(
        "params.seeds",
        params.seeds,
        (batch.num_reqs,),
        (params.seeds.dtype,),
        batch.target_logits.device,
    )
    _check_counts(batch, params)


def check_sample_fits(batch: SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` unless the parameters are for this batch."""
    check_tensor(
        "params.seeds",
        params.seeds,
        (batch.num_reqs,),
        (params.seeds.dtype,),
        batch.logits.device,
    )
    if batch.draft_index is None:
        _check_counts(batch, params)


def _check_counts(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> None:
    if params.penalties is not None and batch.token_counts is None:
        raise InvalidInputError(
            "token_counts: expected TokenCounts because a request has penalties, got None"
        )
