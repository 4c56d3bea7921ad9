"""The thresholds that temperature and filters set, and the law that is left, in float64.

The order is fixed: temperature, min-p, top-k, top-p. Every filter keeps the tokens from some logit
on, so ties share one fate and no sort order matters.
"""

import torch
from torch import Tensor

from ...core.sampling_tensors import RecipeTensors

_OVERFLOW = 2.0**128 - 2.0**103
"""The least number that float32 rounds to infinity."""

_FAR = 2.0**103
"""A logit smaller than this is not so far above any other."""


def log_probs(logits: Tensor, recipe: RecipeTensors, requests: Tensor) -> Tensor:
    """The law that the recipe makes of (adjusted) logits.

    Args:
        logits: [num_rows, vocab_size] float64; rows that are not usable come out undefined. A logit
            too far below the largest for float32 to hold the difference has no weight.
        recipe: of the whole batch.
        requests: [num_rows] int64, the request that each row belongs to.

    Returns:
        [num_rows, vocab_size] float64; one-hot at the lowest argmax at temperature 0. No softmax
        is computed when the whole batch is greedy.
    """
    if recipe.all_greedy:
        return _one_hot_at_argmax(logits)
    temperature = recipe.temperature[requests, None].to(torch.float64)
    within_reach = _without_overflow(logits)
    if not recipe.any_greedy:
        return _filtered(within_reach / temperature, recipe, requests).log_softmax(dim=-1)
    greedy = temperature == 0
    scaled = _filtered(within_reach / torch.where(greedy, 1.0, temperature), recipe, requests)
    return torch.where(greedy, _one_hot_at_argmax(logits), scaled.log_softmax(dim=-1))


def _without_overflow(logits: Tensor) -> Tensor:
    largest = logits.amax(dim=-1, keepdim=True)
    if not bool((largest >= _FAR).any()):
        return logits
    return logits.masked_fill(logits <= largest - _OVERFLOW, -torch.inf)


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
    # Not divided by their sum, so that masses that are whole numbers are exact.
    mass = (ordered - ordered[:, :1]).exp().cumsum(dim=-1)
    mass_before = mass.roll(1, dims=-1)
    mass_before[:, 0] = 0.0
    # A token is kept only while the mass before it is smaller than top_p, not when it is equal.
    num_kept = (mass_before < top_p * mass[:, -1:]).sum(dim=-1, keepdim=True)
    # Rows that cannot be used keep none.
    last_kept = ordered.gather(1, num_kept.clamp(min=1) - 1)
    return _keep_from(scaled, torch.where(top_p < 1, last_kept, -torch.inf))


def _keep_from(scaled: Tensor, threshold: Tensor) -> Tensor:
    return scaled.masked_fill(scaled < threshold, -torch.inf)
