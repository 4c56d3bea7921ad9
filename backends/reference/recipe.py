"""From logits to log-probabilities, row by row, in float64.

The order is fixed: bias, penalties, temperature, min-p, top-k, top-p. Every filter is a threshold
on the logit, so ties are kept together and no sort order matters. Fused backends fold the same
steps into their loads.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.sampling_tensors import BiasTensors, PenaltyTensors, RecipeTensors, SamplingTensors
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
    """Apply logit bias and penalties.

    Args:
        logits: [num_rows, vocab_size], raw.
        params: the batch's parameters.
        requests: [num_rows] int64, the request that each row belongs to.
        seen: needed when some request has penalties.

    Returns:
        [num_rows, vocab_size] float64.
    """
    adjusted = logits.to(torch.float64)
    if params.bias is not None:
        adjusted = _add_bias(adjusted, params.bias, requests)
    if params.penalties is not None and seen is not None:
        adjusted = _penalise(adjusted, params.penalties, requests, seen)
    return adjusted


def _add_bias(logits: Tensor, bias: BiasTensors, requests: Tensor) -> Tensor:
    token_ids = bias.token_ids[requests]
    applies = (token_ids >= 0) & (token_ids < logits.shape[1])
    values = torch.where(applies, bias.values[requests].to(torch.float64), 0.0)
    return logits.scatter_add(1, torch.where(applies, token_ids, 0), values)


def _penalise(
    logits: Tensor, penalties: PenaltyTensors, requests: Tensor, seen: SeenTokens
) -> Tensor:
    repetition = penalties.repetition[requests, None].to(torch.float64)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen.in_prompt | (seen.in_output > 0), repeated, logits)
    frequency = penalties.frequency[requests, None].to(torch.float64)
    presence = penalties.presence[requests, None].to(torch.float64)
    return logits - frequency * seen.in_output - presence * (seen.in_output > 0)


def is_usable(logits: Tensor) -> Tensor:
    """Which rows have a largest logit: no NaN, no +inf, not only -inf. [num_rows] bool."""
    # The maximum of a row with a NaN is NaN.
    return logits.amax(dim=-1).isfinite()


def log_probs(logits: Tensor, recipe: RecipeTensors, requests: Tensor) -> Tensor:
    """The law that the recipe makes of (adjusted) logits.

    Args:
        logits: [num_rows, vocab_size] float64; rows that are not usable come out undefined.
        recipe: of the whole batch.
        requests: [num_rows] int64, the request that each row belongs to.

    Returns:
        [num_rows, vocab_size] float64; one-hot at the lowest argmax at temperature 0. No softmax
        is computed when the whole batch is greedy.
    """
    if recipe.all_greedy:
        return _one_hot_at_argmax(logits)
    temperature = recipe.temperature[requests, None].to(torch.float64)
    if not recipe.any_greedy:
        return _filtered(logits / temperature, recipe, requests).log_softmax(dim=-1)
    greedy = temperature == 0
    scaled = _filtered(logits / torch.where(greedy, 1.0, temperature), recipe, requests)
    return torch.where(greedy, _one_hot_at_argmax(logits), scaled.log_softmax(dim=-1))


def _one_hot_at_argmax(logits: Tensor) -> Tensor:
    # torch.argmax promises the first of several maxima, which is the lowest id.
    largest = logits.argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter_(1, largest, 0.0)


def _filtered(scaled: Tensor, recipe: RecipeTensors, requests: Tensor) -> Tensor:
    if recipe.any_min_p:
        scaled = _cut_min_p(scaled, recipe.min_p[requests, None].to(torch.float64))
    if recipe.any_top_k:
        scaled = _cut_top_k(scaled, recipe.top_k[requests, None].long())
    if recipe.any_top_p:
        scaled = _cut_top_p(scaled, recipe.top_p[requests, None].to(torch.float64))
    return scaled


def _cut_min_p(scaled: Tensor, min_p: Tensor) -> Tensor:
    return _keep_from(scaled, scaled.amax(dim=-1, keepdim=True) + min_p.log())


def _cut_top_k(scaled: Tensor, top_k: Tensor) -> Tensor:
    vocab_size = scaled.shape[1]
    rank = torch.where(top_k == 0, vocab_size, top_k).clamp(max=vocab_size) - 1
    return _keep_from(scaled, scaled.sort(dim=-1, descending=True).values.gather(1, rank))


def _cut_top_p(scaled: Tensor, top_p: Tensor) -> Tensor:
    ordered = scaled.sort(dim=-1, descending=True).values
    mass_before = ordered.softmax(dim=-1).cumsum(dim=-1).roll(1, dims=-1)
    mass_before[:, 0] = 0.0
    num_kept = (mass_before < top_p).sum(dim=-1, keepdim=True)
    last_kept = ordered.gather(1, num_kept - 1)
    return _keep_from(scaled, torch.where(top_p < 1, last_kept, -torch.inf))


def _keep_from(scaled: Tensor, threshold: Tensor) -> Tensor:
    return scaled.masked_fill(scaled < threshold, -torch.inf)
