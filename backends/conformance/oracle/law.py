"""What a row of logits says: an exact law, and the bounds inside which float32 must find it."""

import math
from collections.abc import Callable, Mapping

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from ....core.sampling_params import Recipe
from .filters import Flags, Support
from .noise import Floats

TOLERANCE = 1e-5
"""Up to this margin a decision is a near-tie: float32 may decide it otherwise."""

LEAST_MARGIN, MOST_MARGIN = 1e-17, 0.5


def margin_of(may_turn: Callable[[float], bool]) -> float:
    """The smallest relative change at which something may turn; infinite if none does.

    Args:
        may_turn: whether a change up to so much may turn it; once true, true for more.
    """
    if not may_turn(MOST_MARGIN):
        return math.inf
    low, high = math.log(LEAST_MARGIN), math.log(MOST_MARGIN)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if may_turn(math.exp(middle)) else (middle, high)
    return math.exp(high)


LEAST = np.finfo(np.float64).min / 2
"""Stands for the logarithm of 0 where infinities would meet."""

Integers = NDArray[np.int64]
ROUNDING = 2.0**-21 / TOLERANCE
"""What a few roundings to float32 may do to a scaled logit, relative to it and to the tolerance."""


@frozen(eq=False)
class Bounds:
    """Logarithms of the least and the most that each token's weight can be."""

    low: Floats
    high: Floats


@frozen
class Law:
    """Logarithms of weights, and their bounds, which are only computed when something differs.

    Attributes:
        log_p: [V], -inf where the weight is 0.
        bounds: computes the bounds for a relative change of all inputs.
    """

    log_p: Floats = field(eq=False)
    bounds: Callable[[float], Bounds] = field(eq=False)

    def doubted(self, tolerance: float = TOLERANCE) -> Flags:
        """The tokens that may have a weight or none after a relative change: [V]."""
        bounds = self.bounds(tolerance)
        doubted: Flags = (bounds.low == -np.inf) & (bounds.high > -np.inf)
        return doubted

    @property
    def doubted_mass(self) -> float:
        """The most that they can weigh."""
        return float(np.exp(self.bounds(TOLERANCE).high[self.doubted()]).sum())


@frozen(eq=False)
class Adjustments:
    """What one request adds to its logits before anything else."""

    bias: Mapping[int, float] = field(factory=dict)
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0


def is_usable(logits: Floats) -> bool:
    """No NaN, no +inf, and not only -inf."""
    return not np.isnan(logits).any() and bool(np.isfinite(logits.max()))


@np.errstate(over="ignore", invalid="ignore")
def adjust(raw: Floats, wanted: Adjustments, in_prompt: Flags, counts: Integers) -> Floats:
    """Bias first, then the penalties for tokens seen in the prompt and counted in the output.

    Each operation is rounded to float32, which makes adjusted logits exact everywhere.
    """
    logits = raw.astype(np.float32)
    for token_id, bias in wanted.bias.items():
        if token_id < len(raw):
            logits[token_id] += np.float32(bias)
    repetition, presence, frequency = map(np.float32, attrs.astuple(wanted)[1:])
    in_output = counts > 0
    repeated = np.where(logits > 0, logits / repetition, logits * repetition)
    logits = np.where(in_prompt | in_output, repeated, logits)
    charged = logits - frequency * counts.astype(np.float32) - presence
    return np.where(in_output, charged, logits).astype(np.float64)


def relative(logits: Floats) -> Floats:
    """To the largest one; -inf where the difference overflows float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = logits.astype(np.float32) - np.float32(logits.max())
    return np.where(narrow == -np.inf, -np.inf, logits - logits.max())


def law_of(logits: Floats, recipe: Recipe) -> Law:
    """The law that a recipe makes of a usable row."""
    if recipe.temperature == 0:
        return one_hot(int(logits.argmax()), len(logits))
    scaled = relative(logits) / recipe.temperature
    kept = Support.of(logits, scaled, np.zeros_like(scaled), recipe, 0.0).exact
    log_weights = np.where(kept, scaled, -np.inf)
    log_p = log_weights - log_sum(log_weights)

    def bounds(tolerance: float) -> Bounds:
        slack = np.where(np.isfinite(scaled), tolerance * ROUNDING * abs(scaled), 0.0)
        support = Support.of(logits, scaled, slack, recipe, tolerance)
        if support.possible.sum() == 1:
            return Bounds(log_p, log_p)
        low = np.where(support.certain, scaled - slack, -np.inf)
        high = np.where(support.possible, scaled + slack, -np.inf)
        least, most = log_sum(low), log_sum(high)
        # Half of the tolerance on each side of a comparison.
        highest_share = np.minimum(high + tolerance / 2 - max(least, LEAST), 0.0)
        return Bounds(low - most - tolerance / 2, highest_share)

    return Law(log_p, bounds)


def log_sum(log_weights: Floats) -> float:
    """The logarithm of the sum of weights, -inf if there are none."""
    highest = float(log_weights.max())
    if highest == -np.inf:
        return highest
    return highest + float(np.log(np.exp(log_weights - highest).sum()))


def one_hot(token_id: int, vocab_size: int) -> Law:
    """Certainty, with nothing to round."""
    log_p = np.full(vocab_size, -np.inf)
    log_p[token_id] = 0.0
    return Law(log_p, lambda _: Bounds(log_p, log_p))


def place(law: Law, token_ids: Integers, vocab_size: int) -> Law:
    """The same law over other ids: entry i belongs to token_ids[i], and is lost outside."""
    inside = token_ids < vocab_size

    def placed(values: Floats) -> Floats:
        wide = np.full(vocab_size, -np.inf)
        wide[token_ids[inside]] = values[inside]
        return wide

    def bounds(tolerance: float) -> Bounds:
        inner = law.bounds(tolerance)
        return Bounds(placed(inner.low), placed(inner.high))

    return Law(placed(law.log_p), bounds)
