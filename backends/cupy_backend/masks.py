"""Masks of allowed tokens, which these kernels do not read."""

from ...core.batch import SampleBatch, VerifyBatch
from ...core.errors import UnavailableError


def refuse_masks(batch: VerifyBatch | SampleBatch) -> None:
    """Raise `UnavailableError` about a batch with masks, rather than draw what they forbid."""
    if batch.allowed_tokens is not None:
        raise UnavailableError("allowed_tokens: backend cupy has no kernels for masks")
