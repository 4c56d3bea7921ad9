"""The target's law of single rows and of whole sequences, by the conformance kit's oracle.

That oracle shares only plain values with the samplers.
"""

from collections.abc import Callable, Sequence

import numpy as np
from attrs import fields_dict, frozen
from numpy.typing import NDArray

from acceptor.backends.conformance.oracle import law as oracle
from acceptor.core import Recipe, SamplingParams

Floats = NDArray[np.float64]


@frozen(eq=False)
class Row:
    """One row's law.

    Attributes:
        law: the oracle's.
    """

    law: oracle.Law

    @property
    def probs(self) -> Floats:
        """[vocab_size]."""
        probs: Floats = np.exp(self.law.log_p)
        return probs

    @property
    def margin(self) -> float:
        """The smallest relative change of the logits after which a filter keeps other tokens."""
        return self.law.support_margin


def row_of(logits: Floats, recipe: Recipe) -> Row:
    """Temperature, min-p, top-k, top-p, in this order."""
    values = {name: getattr(recipe, name) for name in fields_dict(Recipe)}
    rounded = {name: _as_float32(value) for name, value in values.items() if name != "top_k"}
    return Row(oracle.law_of(logits, Recipe(**values | rounded)))


def adjusted(
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
            row = row_of(adjusted(model(tokens), params, prompt, tokens), params)
            longer |= {(*tokens, v): mass * p for v, p in enumerate(row.probs.tolist()) if p > 0}
        law = longer
    return law
