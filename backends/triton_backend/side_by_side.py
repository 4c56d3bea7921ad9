"""Integers of a batch as kernels read them: side by side.

No copy is kept, as what it is of may change before the next call.
"""

from typing import Any, TypeVar

from attrs import evolve

from ...core.batch import SampleBatch, VerifyBatch

Batch = TypeVar("Batch", VerifyBatch, SampleBatch)


def side_by_side(batch: Batch) -> Batch:
    """The batch itself, unless a column of something larger is one of its vectors, say."""
    # On the way of every eager call: nothing is made where nothing is to be done.
    slots, masks = batch.slot_ids, batch.allowed_rows
    lie_so = batch.positions.is_contiguous() and (slots is None or slots.is_contiguous())
    lie_so = lie_so and (masks is None or masks.is_contiguous())
    if isinstance(batch, VerifyBatch):
        lie_so = lie_so and batch.cu_num_logits.is_contiguous() and _has_whole_rows(batch)
    return batch if lie_so else _copied(batch)


def _copied(batch: Batch) -> Batch:
    slots, masks = batch.slot_ids, batch.allowed_rows
    integers: dict[str, Any] = {
        "positions": batch.positions.contiguous(),
        "slot_ids": None if slots is None else slots.contiguous(),
        "allowed_rows": None if masks is None else masks.contiguous(),
    }
    if isinstance(batch, VerifyBatch):
        integers["cu_num_logits"] = batch.cu_num_logits.contiguous()
        integers["draft_token_ids"] = batch.draft_token_ids.contiguous()
    return evolve(batch, **integers)


def _has_whole_rows(batch: VerifyBatch) -> bool:
    token_ids = batch.draft_token_ids
    return token_ids.is_contiguous() or token_ids.stride(1) == 1
