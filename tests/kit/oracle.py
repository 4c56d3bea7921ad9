"""From logits to the target's law once more: NumPy, float64, one row, by brute force.

It sorts, cuts and renormalises as the contract reads, and says how close a call each cut was. This
module refuses to import what it judges: of the package it knows only the parameters.
"""

from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from acceptor.core import Recipe, SamplingParams

Floats = NDArray[np.float64]


@frozen(eq=False)
class Row:
    """One row's law.

    Attributes:
        probs: [vocab_size].
        margin: the smallest relative distance between what a cut compared; cuts with a margin near
            0 may turn out either way in other arithmetic.
    """

    probs: Floats
    margin: float = np.inf

    def keeping(self, kept: NDArray[np.bool_], margin: float) -> "Row":
        """Cut the others and renormalise."""
        probs = np.where(kept, self.probs, 0.0)
        return Row(probs / probs.sum(), min(self.margin, margin))


def row_of(logits: Floats, recipe: Recipe) -> Row:
    """Temperature, min-p, top-k, top-p, in this order."""
    if recipe.temperature == 0:
        probs = np.zeros_like(logits)
        probs[logits.tolist().index(logits.max())] = 1.0
        return Row(probs)
    scaled = logits / np.float64(np.float32(recipe.temperature))
    weights = np.exp(scaled - scaled.max())
    row = Row(weights / weights.sum())
    if recipe.min_p > 0:
        row = _min_p(row, float(np.float32(recipe.min_p)))
    if recipe.top_k > 0:
        row = _top_k(row, scaled, recipe.top_k)
    top_p = float(np.float32(recipe.top_p))
    return _top_p(row, scaled, top_p) if top_p < 1 else row


def _min_p(row: Row, min_p: float) -> Row:
    floor = min_p * row.probs.max()
    distance = np.abs(row.probs[row.probs < row.probs.max()] / floor - 1)
    return row.keeping(row.probs >= floor, float(distance.min(initial=np.inf)))


def _top_k(row: Row, scaled: Floats, top_k: int) -> Row:
    """What is tied with the k-th largest stays."""
    left = sorted(scaled[row.probs > 0].tolist(), reverse=True)
    last = left[min(top_k, len(left)) - 1]
    return row.keeping(scaled >= last, np.inf)


def _top_p(row: Row, scaled: Floats, top_p: float) -> Row:
    """The fewest most likely tokens with enough mass, and what is tied with the last of them."""
    order = np.argsort(-np.where(row.probs > 0, scaled, -np.inf), kind="stable")
    masses = np.cumsum(row.probs[order])
    last = int(np.argmax(masses >= top_p)) if masses[-1] >= top_p else len(order) - 1
    margin = float(np.abs(masses[row.probs[order] > 0] / top_p - 1).min())
    kept = (scaled >= scaled[order[last]]) & (row.probs > 0)
    return row.keeping(kept, margin)


def adjusted(
    logits: Floats, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> Floats:
    """Bias, then repetition, frequency and presence penalties, token by token."""
    result = np.array(logits, dtype=np.float64)
    for token_id, value in params.logit_bias:
        if token_id < len(result):
            result[token_id] += np.float64(np.float32(value))
    repetition = np.float64(np.float32(params.repetition_penalty))
    for token_id in {*prompt, *output}:
        value = result[token_id]
        result[token_id] = value / repetition if value > 0 else value * repetition
    for token_id in set(output):
        occurrences = list(output).count(token_id)
        result[token_id] -= np.float64(np.float32(params.frequency_penalty)) * occurrences
        result[token_id] -= np.float64(np.float32(params.presence_penalty))
    return result


def sequence_law(
    model: Callable[[tuple[int, ...]], Floats],
    params: SamplingParams,
    num_tokens: int,
    prompt: Sequence[int] = (),
) -> dict[tuple[int, ...], float]:
    """The law of the first num_tokens tokens of plain sampling."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(num_tokens):
        longer: dict[tuple[int, ...], float] = {}
        for tokens, mass in law.items():
            row = row_of(adjusted(model(tokens), params, prompt, tokens), params)
            longer |= {(*tokens, v): mass * p for v, p in enumerate(row.probs.tolist()) if p > 0}
        law = longer
    return law
