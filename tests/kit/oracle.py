"""The target's law of whole sequences, by the conformance kit's oracle.

That oracle shares only plain values with the samplers.
"""

from collections.abc import Callable, Sequence

import numpy as np
from attrs import fields_dict
from numpy.typing import NDArray

from acceptor.backends.conformance.oracle import law as oracle
from acceptor.core import Recipe, SamplingParams

Floats = NDArray[np.float64]


def _probs(logits: Floats, recipe: Recipe) -> Floats:
    """Temperature, min-p, top-k, top-p, in this order: [vocab_size]."""
    values = {name: getattr(recipe, name) for name in fields_dict(Recipe)}
    rounded = {name: _as_float32(value) for name, value in values.items() if name != "top_k"}
    probs: Floats = np.exp(oracle.law_of(logits, Recipe(**values | rounded)).log_p)
    return probs


def _adjusted(
    logits: Floats, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> Floats:
    """Bias, then repetition, frequency and presence penalties."""
    wanted = oracle.Adjustments(
        {token_id: _as_float32(value) for token_id, value in params.logit_bias},
        repetition=_as_float32(params.repetition_penalty),
        presence=_as_float32(params.presence_penalty),
        frequency=_as_float32(params.frequency_penalty),
    )
    in_prompt = np.zeros(len(logits), dtype=bool)
    in_prompt[list(prompt)] = True
    counts = np.bincount(np.array(output, dtype=np.int64), minlength=len(logits))
    return oracle.adjust(logits, wanted, in_prompt, counts)


def _as_float32(value: float) -> float:
    """What samplers are given."""
    return float(np.float32(value))


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
            probs = _probs(_adjusted(model(tokens), params, prompt, tokens), params)
            longer |= {(*tokens, v): mass * p for v, p in enumerate(probs.tolist()) if p > 0}
        law = longer
    return law
