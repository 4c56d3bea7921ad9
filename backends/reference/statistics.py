"""Prepares rows of logits: applies bias, penalties and masks, and tells which rows are usable.

Bias and penalties are applied in float32, operation by operation, so that every backend gets the
same bits and ties stay ties.
"""

import torch
from torch import Tensor

from ...core import SampleBatch, SamplingTensors, Status, VerifyBatch
from ...core.allowed_tokens import unpack_allowed
from ...core.sampling_tensors import BiasTensors, PenaltyTensors

Batch = VerifyBatch | SampleBatch


def adjust_logits(
    batch: Batch,
    params: SamplingTensors,
    requests: Tensor,
    logits: Tensor,
    draft_token_ids: Tensor | None = None,
) -> Tensor:
    """Apply logit bias and penalties; what overflows float32 becomes infinite.

    Args:
        batch: holds the token counts for penalties.
        params: the batch's parameters.
        requests: [num_rows] int64, the request that each row belongs to.
        logits: [num_rows, vocab_size], raw.
        draft_token_ids: the draft, if all rows belong to one request: row i has seen tokens 1..i.

    Returns:
        [num_rows, vocab_size] float32.
    """
    adjusted = logits.to(torch.float32)
    if params.bias is not None:
        adjusted = _add_bias(adjusted, params.bias, requests)
    if params.penalties is not None and batch.token_counts is not None:
        slots = requests if batch.slot_ids is None else batch.slot_ids[requests].long()
        in_output = batch.token_counts.output_counts[slots]
        if draft_token_ids is not None:
            in_output = in_output + _drafted_before(draft_token_ids, in_output)
        in_prompt = batch.token_counts.prompt_mask[slots]
        adjusted = _penalise(adjusted, params.penalties, requests, in_prompt, in_output)
    return adjusted


def _drafted_before(draft_token_ids: Tensor, in_output: Tensor) -> Tensor:
    """How often each id is drafted before each row: [num_rows, vocab_size], like in_output."""
    drafted = torch.zeros_like(in_output)
    rows = torch.arange(1, len(draft_token_ids) + 1, device=drafted.device)
    drafted[rows, draft_token_ids] = 1
    return drafted.cumsum(dim=0)


def _add_bias(logits: Tensor, bias: BiasTensors, requests: Tensor) -> Tensor:
    token_ids = bias.token_ids[requests]
    applies = (token_ids >= 0) & (token_ids < logits.shape[1])
    values = torch.where(applies, bias.values[requests], 0.0)
    return logits.scatter_add(1, torch.where(applies, token_ids, 0), values)


def _penalise(
    logits: Tensor,
    penalties: PenaltyTensors,
    requests: Tensor,
    in_prompt: Tensor,
    in_output: Tensor,
) -> Tensor:
    repetition = penalties.repetition[requests, None]
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(in_prompt | (in_output > 0), repeated, logits)
    # Two operations each: a fused multiply-add would round differently.
    logits = logits - penalties.frequency[requests, None] * in_output
    return logits - penalties.presence[requests, None] * (in_output > 0)


def allowed_in(batch: Batch, first: int, count: int, vocab_size: int) -> Tensor | None:
    """The tokens that consecutive rows allow: [count, vocab_size] bool; None without masks."""
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


def is_usable(logits: Tensor) -> Tensor:
    """Which rows have a largest logit: no NaN, no +inf, not only -inf. [num_rows] bool."""
    # The maximum of a row with a NaN is NaN.
    return logits.amax(dim=-1).isfinite()


def num_leading(flags: Tensor) -> int:
    """The number of leading True values."""
    places = (place for place, flag in enumerate(flags.tolist()) if not flag)
    return next(places, len(flags))
