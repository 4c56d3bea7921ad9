"""The target's law by the conformance kit's oracle, and how far an emitted one is from it.

That oracle shares only plain values with the samplers.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from attrs import fields_dict, frozen
from numpy.typing import NDArray

from acceptor.backends.conformance.oracle import law as oracle
from acceptor.core import Recipe, SamplingParams
from kit.bugs import Bug
from kit.decode_law import DecodeSetup, Law, Tokens, emitted_law
from lab.proof.cases import BY_NAME, Pair

Floats = NDArray[np.float64]
EXACT = 1e-12
"""The largest error that float64 rounding may add up to."""


@frozen
class LawError:
    """The distance of two laws of sequences.

    Attributes:
        first: the largest difference of any first token's probability.
        joint: the largest of any sequence's.
        conditional: the largest of any token's, given the tokens before it.
    """

    first: float
    joint: float
    conditional: float

    @property
    def worst(self) -> float:
        """The largest of them."""
        return max(self.first, self.joint, self.conditional)


def law_error(setup: DecodeSetup, num_tokens: int) -> LawError:
    """Enumerate decode runs and compare them with plain sampling."""
    emitted, expected = emitted_law(setup, num_tokens), target_law(setup, num_tokens)
    return LawError(
        first=largest(shortened(emitted, 1), shortened(expected, 1)),
        joint=largest(emitted, expected),
        conditional=max(
            largest(conditional(emitted, length), conditional(expected, length))
            for length in range(1, num_tokens + 1)
        ),
    )


def error_of_pair(pair: Pair) -> LawError:
    """The error over as many tokens as can be enumerated."""
    return law_error(pair.setup, pair.num_tokens)


def error_under(bug: Bug) -> LawError:
    """The error of the law that a bug changes, while the bug is planted."""
    assert bug.check is not None
    with bug.planted():
        return error_of_pair(BY_NAME[bug.check])


def target_law(setup: DecodeSetup, num_tokens: int) -> Law:
    """The law of plain sampling, by an oracle that shares no code with the sampler."""

    def model(tokens: Tokens) -> Floats:
        logits: Floats = setup.target(tokens).double().numpy()
        if setup.allows is not None:
            logits[~np.isin(np.arange(len(logits)), setup.allows(tokens))] = -np.inf
        return logits

    return sequence_law(model, setup.params, num_tokens, setup.prompt)


def shortened(law: Law, length: int) -> Law:
    """The law of the first tokens alone."""
    short: defaultdict[Tokens, float] = defaultdict(float)
    for tokens, mass in law.items():
        short[tokens[:length]] += mass
    return dict(short)


def conditional(law: Law, length: int) -> Law:
    """The probability of each sequence's last token, given the ones before it."""
    before = shortened(law, length - 1)
    return {
        tokens: mass / before[tokens[:-1]]
        for tokens, mass in shortened(law, length).items()
        if before[tokens[:-1]] > 0
    }


def variation(law: Law, other: Law) -> float:
    """Half the sum of all differences."""
    return sum(_differences(law, other)) / 2


def largest(law: Law, other: Law) -> float:
    """The largest of all differences."""
    return max(_differences(law, other))


def _differences(law: Law, other: Law) -> list[float]:
    return [abs(law.get(tokens, 0.0) - other.get(tokens, 0.0)) for tokens in law.keys() | other]


def _probs(logits: Floats, recipe: Recipe) -> Floats:
    """Probabilities after temperature, min-p, top-k, top-p, in this order: [vocab_size]."""
    values = {name: getattr(recipe, name) for name in fields_dict(Recipe)}
    rounded = {name: _as_float32(value) for name, value in values.items() if name != "top_k"}
    probs: Floats = np.exp(oracle.law_of(logits, Recipe(**values | rounded)).log_p)
    return probs


def _adjusted(
    logits: Floats, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> Floats:
    """Logits after bias, then repetition, frequency and presence penalties."""
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
    """The float32 numbers that samplers get."""
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
