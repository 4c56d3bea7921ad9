"""What a row of logits says: an exact law, and the bounds inside which float32 must find it."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from ....core.sampling_params import Recipe
from .filters import Flags, Support, kept
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
"""What a few roundings to float32 may do to a sum of logits, relative to its largest operand and to
the tolerance."""


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
    def support_margin(self) -> float:
        """The smallest relative change that may keep or cut another token."""
        return margin_of(lambda tolerance: bool(self.doubted(tolerance).any()))

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


@frozen(eq=False)
class Row:
    """One row of logits after bias and penalties.

    Attributes:
        logits: [V].
        magnitude: [V], the size of the largest operand, which float32 rounding is relative to.
        touched: [V], where logits are no longer the model's own numbers.
    """

    logits: Floats
    magnitude: Floats
    touched: Flags

    @property
    def is_usable(self) -> bool:
        """No NaN, no +inf, and not only -inf."""
        return not np.isnan(self.logits).any() and bool(np.isfinite(self.logits.max()))

    @classmethod
    def raw(cls, logits: Floats) -> "Row":
        """Logits as they came."""
        magnitude = np.where(np.isfinite(logits), abs(logits), 0.0)
        return cls(logits, magnitude, np.zeros(len(logits), dtype=bool))


def adjust(raw: Floats, wanted: Adjustments, in_prompt: Flags, counts: Integers) -> Row:
    """Bias first, then the penalties for tokens seen in the prompt and counted in the output."""
    row = Row.raw(raw)
    logits, magnitude, touched = raw.copy(), row.magnitude, row.touched
    for token_id, bias in wanted.bias.items():
        if token_id < len(raw):
            # Not in place on the array: NumPy warns of +inf - inf.
            logits[token_id] = float(logits[token_id]) + bias
            magnitude[token_id] += abs(bias) if np.isfinite(bias) else 0.0
            touched[token_id] = True
    seen = in_prompt | (counts > 0)
    if wanted.repetition != 1:
        positive = seen & (logits > 0)
        logits[positive] /= wanted.repetition
        logits[seen & ~positive] *= wanted.repetition
        magnitude[seen] *= max(wanted.repetition, 1 / wanted.repetition)
        touched |= seen
    charge = wanted.frequency * counts + wanted.presence * (counts > 0)
    if wanted.frequency or wanted.presence:
        logits -= charge
        magnitude += abs(wanted.frequency) * counts + abs(wanted.presence) * (counts > 0)
        touched |= counts > 0
    return Row(logits, magnitude, touched)


def law_of(row: Row, recipe: Recipe) -> Law:
    """The law that a recipe makes of a usable row."""
    if recipe.temperature == 0:
        return _greedy(row)
    highest = int(row.logits.argmax())
    scaled = (row.logits - row.logits[highest]) / recipe.temperature
    keep = kept(scaled, recipe)
    log_weights = np.where(keep, scaled, -np.inf)
    log_p = log_weights - log_sum(log_weights)

    def bounds(tolerance: float) -> Bounds:
        rounding = tolerance * ROUNDING
        slack = rounding * (row.magnitude + row.magnitude[highest]) / recipe.temperature
        support = Support.of(scaled, slack, row.touched, recipe, tolerance)
        if support.possible.sum() == 1:
            return Bounds(log_p, log_p)
        low = np.where(support.certain, scaled - slack, -np.inf)
        high = np.where(support.possible, scaled + slack, -np.inf)
        least, most = log_sum(low), log_sum(high)
        # Half of the tolerance on each side of a comparison.
        highest_share = np.where(support.possible, high + tolerance / 2, -np.inf) - max(
            least, LEAST
        )
        return Bounds(low - most - tolerance / 2, np.minimum(highest_share, 0.0))

    return Law(log_p, bounds)


def log_sum(log_weights: Floats) -> float:
    """The logarithm of the sum of weights, -inf if there are none."""
    highest = float(log_weights.max())
    if highest == -np.inf:
        return highest
    return highest + float(np.log(np.exp(log_weights - highest).sum()))


def _greedy(row: Row) -> Law:
    highest = int(row.logits.argmax())

    def bounds(tolerance: float) -> Bounds:
        slack = tolerance * ROUNDING * (row.magnitude + row.magnitude[highest])
        comparable = row.touched | row.touched[highest]
        possible = comparable & (row.logits >= row.logits[highest] - slack)
        possible[highest] = True
        low = one_hot(highest, len(possible)).log_p
        if possible.sum() > 1:
            low = np.full(len(possible), -np.inf)
        return Bounds(low, np.where(possible, 0.0, -np.inf))

    return Law(one_hot(highest, len(row.logits)).log_p, bounds)


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
