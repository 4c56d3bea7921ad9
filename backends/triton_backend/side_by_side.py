"""Integers of a batch as kernels read them: side by side.

This module refuses to keep a copy, as what it is of may change before the next call.
"""

from typing import TypeVar

from attrs import evolve
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch

Batch = TypeVar("Batch", VerifyBatch, SampleBatch)


def side_by_side(batch: Batch) -> Batch:
    """The batch itself, unless a column of something larger is one of its vectors, say."""
    apart = [name for name, tensor in _vectors(batch) if not tensor.is_contiguous()]
    changed = {name: getattr(batch, name).contiguous() for name in apart}
    if isinstance(batch, VerifyBatch) and not _has_whole_rows(batch.draft_token_ids):
        changed["draft_token_ids"] = batch.draft_token_ids.contiguous()
    return evolve(batch, **changed) if changed else batch


def _vectors(batch: VerifyBatch | SampleBatch) -> list[tuple[str, Tensor]]:
    vectors = [("positions", batch.positions)]
    if batch.slot_ids is not None:
        vectors.append(("slot_ids", batch.slot_ids))
    if isinstance(batch, VerifyBatch):
        vectors.append(("cu_num_logits", batch.cu_num_logits))
    return vectors


def _has_whole_rows(token_ids: Tensor) -> bool:
    return token_ids.shape[1] < 2 or token_ids.stride(1) == 1
