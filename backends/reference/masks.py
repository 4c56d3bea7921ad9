"""Applies masks of allowed tokens to rows of logits, and says why a masked row is unusable."""

import torch
from torch import Tensor

from ...core import SampleBatch, Status, VerifyBatch
from ...core.allowed_tokens import unpack_allowed

Batch = VerifyBatch | SampleBatch


def allowed_in(batch: Batch, first: int, count: int, vocab_size: int) -> Tensor | None:
    """What consecutive rows of logits allow: [count, vocab_size] bool; None without masks."""
    if batch.allowed_tokens is None:
        return None
    return unpack_allowed(batch.allowed_tokens, batch.allowed_rows, first, count, vocab_size)


def forbid(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Set logits of forbidden tokens to -inf; NaN and +inf stay, so that they are found later."""
    if allowed is None:
        return logits
    return logits.masked_fill(~allowed & (logits < torch.inf), -torch.inf)


def why_unusable(batch: Batch, logits: Tensor, first: int) -> Tensor:
    """The status that each of consecutive masked rows has if it is unusable: [num_rows] int."""
    invalid = Status.TARGET_LOGITS_INVALID
    if isinstance(batch, SampleBatch) and batch.draft_index is not None:
        invalid = Status.DRAFT_LOGITS_INVALID
    status = torch.full((len(logits),), int(invalid), device=logits.device)
    if batch.allowed_tokens is None:
        return status
    is_empty = logits.amax(dim=-1) == -torch.inf
    if batch.allowed_rows is not None:
        is_empty &= batch.allowed_rows[first : first + len(logits)] >= 0
    return torch.where(is_empty, int(Status.NOTHING_ALLOWED), status)
