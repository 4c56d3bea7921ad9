"""What is known of rows before anything is decided: adjusted logits, and whether they are usable.

Bias and penalties are applied in float32, operation by operation, so that every backend has the
same bits and ties stay ties.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.sampling_tensors import BiasTensors, PenaltyTensors, SamplingTensors
from ...core.token_counts import TokenCounts


@frozen(eq=False)
class SeenTokens:
    """What penalties count at each row: [num_rows, vocab_size] each.

    Attributes:
        in_prompt: bool.
        in_output: int, occurrences in the output so far and in the drafts before the row.
    """

    in_prompt: Tensor
    in_output: Tensor

    @classmethod
    def before_rows(
        cls, counts: TokenCounts, slots: Tensor, draft_token_ids: Tensor | None = None
    ) -> "SeenTokens":
        """Look up slots [num_rows]; row i of a draft has also seen draft tokens 1..i."""
        in_output = counts.output_counts[slots]
        if draft_token_ids is not None:
            rows, places = len(slots), torch.arange(len(draft_token_ids), device=slots.device)
            drafted = torch.zeros_like(in_output)
            drafted[places + 1, draft_token_ids] = 1
            in_output = in_output + drafted[:rows].cumsum(dim=0)
        return cls(counts.prompt_mask[slots], in_output)


def adjust_logits(
    logits: Tensor, params: SamplingTensors, requests: Tensor, seen: SeenTokens | None
) -> Tensor:
    """Apply logit bias and penalties; what overflows float32 becomes infinite.

    Args:
        logits: [num_rows, vocab_size], raw.
        params: the batch's parameters.
        requests: [num_rows] int64, the request that each row belongs to.
        seen: needed when some request has penalties.

    Returns:
        [num_rows, vocab_size] float32.
    """
    adjusted = logits.to(torch.float32)
    if params.bias is not None:
        adjusted = _add_bias(adjusted, params.bias, requests)
    if params.penalties is not None and seen is not None:
        adjusted = _penalise(adjusted, params.penalties, requests, seen)
    return adjusted


def _add_bias(logits: Tensor, bias: BiasTensors, requests: Tensor) -> Tensor:
    token_ids = bias.token_ids[requests]
    applies = (token_ids >= 0) & (token_ids < logits.shape[1])
    values = torch.where(applies, bias.values[requests], 0.0)
    return logits.scatter_add(1, torch.where(applies, token_ids, 0), values)


def _penalise(
    logits: Tensor, penalties: PenaltyTensors, requests: Tensor, seen: SeenTokens
) -> Tensor:
    repetition = penalties.repetition[requests, None]
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen.in_prompt | (seen.in_output > 0), repeated, logits)
    # Two operations each: a product that is fused into its sum is rounded otherwise.
    logits = logits - penalties.frequency[requests, None] * seen.in_output
    return logits - penalties.presence[requests, None] * (seen.in_output > 0)


def is_usable(logits: Tensor) -> Tensor:
    """Which rows have a largest logit: no NaN, no +inf, not only -inf. [num_rows] bool."""
    # The maximum of a row with a NaN is NaN.
    return logits.amax(dim=-1).isfinite()


def num_leading(flags: Tensor) -> int:
    """How many of these are True before the first that is not."""
    places = (place for place, flag in enumerate(flags.tolist()) if not flag)
    return next(places, len(flags))
