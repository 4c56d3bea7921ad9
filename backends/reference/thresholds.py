"""Applies temperature and filters to logits and returns the resulting law, in float64.

The order is fixed: temperature, min-p, top-k, top-p. Every filter keeps all tokens from some logit
up, so ties stay or go together and no sort order matters.
"""

import torch
from torch import Tensor

from ...core.sampling_tensors import RecipeTensors

_OVERFLOW = 2.0**128 - 2.0**103
"""The smallest number that float32 rounds to infinity."""

_FAR = 2.0**103
"""Where the maximum is below this, its distance to no logit overflows float32."""

FIRST_SORTED = 256
"""How many tokens top-p sorts first; 16 times as many each time they are too few."""


def log_probs(logits: Tensor, recipe: RecipeTensors, requests: Tensor) -> Tensor:
    """Turn (adjusted) logits into log-probabilities by each request's recipe.

    Args:
        logits: [num_rows, vocab_size] floats; rows that are not usable come out undefined. A logit
            too far below the largest for float32 to hold the difference has no weight.
        recipe: the batch's.
        requests: [num_rows] int64, the request that each row belongs to.

    Returns:
        [num_rows, vocab_size] float64; one-hot at the lowest argmax at temperature 0. No softmax
        is computed when the whole batch is greedy.
    """
    if recipe.all_greedy:
        return _one_hot_at_argmax(logits)
    temperature = recipe.temperature[requests, None].to(torch.float64)
    greedy = temperature == 0
    # One copy, changed in place from here on: fresh memory costs more than the arithmetic.
    scaled = _without_overflow(logits.detach().to(torch.float64, copy=True))
    scaled = _filtered(scaled.div_(torch.where(greedy, 1.0, temperature)), recipe, requests)
    law = torch.log_softmax(scaled, dim=-1, out=scaled)
    return torch.where(greedy, _one_hot_at_argmax(logits), law) if recipe.any_greedy else law


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities without any recipe: like `log_probs`, but no row is greedy."""
    return _without_overflow(logits.detach().to(torch.float64, copy=True)).log_softmax(dim=-1)


def _without_overflow(logits: Tensor) -> Tensor:
    largest = logits.amax(dim=-1, keepdim=True)
    if not bool((largest >= _FAR).any()):
        return logits
    return logits.masked_fill_(logits <= largest - _OVERFLOW, -torch.inf)


def _one_hot_at_argmax(logits: Tensor) -> Tensor:
    # torch.argmax promises the first of several maxima, which is the lowest id.
    largest = logits.argmax(dim=-1, keepdim=True)
    one_hot = torch.full_like(logits, -torch.inf, dtype=torch.float64)
    return one_hot.scatter_(1, largest, 0.0)


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
    rank = top_k.clamp(min=1, max=scaled.shape[1])
    largest = scaled.topk(max(rank.flatten().tolist(), default=1), dim=-1).values
    last_kept = largest.gather(1, rank - 1)
    return _keep_from(scaled, torch.where(top_k == 0, -torch.inf, last_kept))


def _cut_top_p(scaled: Tensor, top_p: Tensor) -> Tensor:
    ordered, mass, total = _most_likely(scaled, top_p)
    mass_before = mass.roll(1, dims=-1)
    mass_before[:, 0] = 0.0
    # A token is kept only if the mass before it is less than top_p, not if it is equal.
    num_kept = (mass_before < top_p * total).sum(dim=-1, keepdim=True)
    # Unusable rows keep no token.
    last_kept = ordered.gather(1, num_kept.clamp(min=1) - 1)
    return _keep_from(scaled, torch.where(top_p < 1, last_kept, -torch.inf))


def _most_likely(scaled: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort just enough of the largest logits to reach top_p of each row's mass.

    In a language model's law few tokens have most of the mass, so few need sorting.

    Returns:
        [num_rows, n] logits, [num_rows, n] sums of weights so far, [num_rows, 1] sum of all.
    """
    vocab_size = scaled.shape[1]
    count, total = min(FIRST_SORTED, vocab_size), None
    while True:
        ordered = scaled.topk(count, dim=-1).values
        # Weights are not divided by their sum, so that whole-number masses stay exact.
        mass = (ordered - ordered[:, :1]).exp().cumsum(dim=-1)
        if bool((ordered[:, -1] == -torch.inf).all()) or count == vocab_size:
            return ordered, mass, mass[:, -1:]
        if total is None:
            total = (scaled - ordered[:, :1]).exp_().sum(dim=-1, keepdim=True)
        if bool(((mass[:, -1:] >= top_p * total) | (top_p == 1)).all()):
            return ordered, mass, total
        count = min(16 * count, vocab_size)


def _keep_from(scaled: Tensor, threshold: Tensor) -> Tensor:
    return scaled.masked_fill_(scaled < threshold, -torch.inf)
