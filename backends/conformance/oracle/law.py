"""What a row of logits says: its law and logprobs, exactly, and what float32 may make of them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from ....core.sampling_params import Recipe
from .filters import Flags, Floats, Interval, supported

TOLERANCE = 1e-5
"""Up to this margin a decision is a near-tie: float32 may decide it otherwise."""

MARGINS = np.geomspace(1e-17, 0.5, 4096)
"""Those that are told apart."""


def margin_of(may_turn: Callable[[float], bool]) -> float:
    """The smallest relative change at which something may turn; infinite if none does.

    Args:
        may_turn: whether a change up to so much may turn it; once true, true for more.
    """
    return float([*MARGINS, math.inf][bisect_left(MARGINS, 1, key=may_turn)])


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


def _kept(bounds: Callable[[float], Bounds]) -> Callable[[float], Bounds]:
    return cache(bounds)


@frozen(eq=False)
class Law:
    """Logarithms of weights; what rounding may make of them is computed when it is asked for.

    Attributes:
        bounds: the least and the most after a relative change of all inputs by so much; the exact
            law at 0.
    """

    bounds: Callable[[float], Bounds] = field(converter=_kept)

    @property
    def log_p(self) -> Floats:
        """[V], -inf where the weight is 0."""
        return self.bounds(0.0).high

    def doubted(self, tolerance: float = TOLERANCE) -> Flags:
        """The tokens that may have a weight or none after a relative change: [V]."""
        bounds = self.bounds(tolerance)
        doubted: Flags = (bounds.low == -np.inf) & (bounds.high > -np.inf)
        return doubted

    def doubted_mass(self, tolerance: float = TOLERANCE) -> float:
        """The most that they can weigh."""
        return float(np.exp(self.bounds(tolerance).high[self.doubted(tolerance)]).sum())


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


def forbid(logits: Floats, allowed: Flags | None) -> Floats:
    """Only what a mask allows is left, and what makes a row unusable wherever it is."""
    if allowed is None:
        return logits
    return np.where(allowed | np.isnan(logits) | (logits == np.inf), logits, -np.inf)


@np.errstate(over="ignore", invalid="ignore")
def relative(logits: Floats) -> Floats:
    """To the largest one; -inf where the difference overflows float32."""
    narrow = logits.astype(np.float32) - np.float32(logits.max())
    return np.where(narrow == -np.inf, -np.inf, logits - logits.max())


def law_of(logits: Floats, recipe: Recipe) -> Law:
    """The law that a recipe makes of a usable row."""
    if recipe.temperature == 0:
        return one_hot(int(logits.argmax()), len(logits))
    scaled = relative(logits) / recipe.temperature

    def bounds(tolerance: float) -> Bounds:
        slack = tolerance * ROUNDING * np.where(np.isfinite(scaled), abs(scaled), 0.0)
        support = supported(logits, scaled, slack, recipe, tolerance)
        if support.accept.sum() == 1:
            alone = np.where(support.accept, 0.0, -np.inf)
            return Bounds(alone, alone)
        low = np.where(support.reject, -np.inf, scaled - slack)
        high = np.where(support.accept, scaled + slack, -np.inf)
        least, most = max(log_sum(low), LEAST), log_sum(high)
        # Half of the tolerance on each side of a comparison.
        return Bounds(low - most - tolerance / 2, np.minimum(high + tolerance / 2 - least, 0.0))

    return Law(bounds)


def log_sum(log_weights: Floats) -> float:
    """The logarithm of the sum of weights, -inf if there are none."""
    return float(np.logaddexp.reduce(log_weights))


def one_hot(token_id: int, vocab_size: int) -> Law:
    """Certainty, with nothing to round."""
    log_p = np.full(vocab_size, -np.inf)
    log_p[token_id] = 0.0
    return Law(lambda _: Bounds(log_p, log_p))


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

    return Law(bounds)


def log_ratio(p: Law, q: Law, token_id: int, tolerance: float) -> Interval:
    """The bounds of log p(x) - log q(x): -inf where p is 0, else +inf where q is."""
    of_p, of_q = p.bounds(tolerance), q.bounds(tolerance)
    least = _minus(float(of_p.low[token_id]), float(of_q.high[token_id]))
    return least, _minus(float(of_p.high[token_id]), float(of_q.low[token_id]))


def _minus(log_p: float, log_q: float) -> float:
    return log_p if log_p == -math.inf else log_p - log_q


@frozen(eq=False)
class RowLogprobs:
    """Logprobs of one row.

    Attributes:
        values: [V].
        doubted: [V], tokens that a filter may keep or cut by a hair.
        logits: [V], what they were made of.
    """

    values: Floats
    doubted: Flags
    logits: Floats

    @classmethod
    def of(cls, raw: Floats, logits: Floats, recipe: Recipe, *, processed: bool) -> "RowLogprobs":
        """In the request's mode; at temperature 0 the processed law is that of adjusted logits."""
        logits = logits if processed else raw
        recipe = Recipe() if recipe.is_greedy or not processed else recipe
        law = law_of(logits, recipe)
        doubted = law.doubted() if recipe.has_filters else np.zeros(len(raw), dtype=bool)
        return cls(law.log_p, doubted, logits)

    @property
    def orders(self) -> list[list[int]]:
        """Ids of tokens that have weight, most likely first.

        Among equals the lowest comes first, or else the larger logit, which weighs the same in
        float.
        """
        orders = np.argsort(-self.values, kind="stable"), np.lexsort((-self.logits, -self.values))
        return [order[self.values[order] > -np.inf].tolist() for order in orders]

    def is_close(self, token_id: int, value: float) -> bool:
        """Whether a float32 logprob of a token may be this one."""
        with np.errstate(over="ignore"):
            expected = float(np.float32(self.values[token_id]))
        return value == expected or abs(value - expected) <= self.tolerance(token_id)

    def gap(self, token_id: int, other: int) -> float:
        """How far apart two are, in nats; infinite where a filter may keep one of two it cuts."""
        values = self.values[[token_id, other]]
        if (values == -np.inf).all():
            return float("inf") if self.doubted[[token_id, other]].any() else 0.0
        return abs(float(values[0] - values[1]))

    def tolerance(self, token_id: int) -> float:
        """How far off a float32 logprob may be."""
        value = self.values[token_id]
        if self.doubted.any():
            return float("inf")
        if not np.isfinite(value):
            return 0.0
        return 1e-4 + 1e-5 * abs(float(value))
