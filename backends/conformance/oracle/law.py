"""The exact law and logprobs of a row of logits, and how far float32 may move them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache, cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from ....core.sampling_params import Recipe
from .filters import Flags, Floats, supported

Integers = NDArray[np.int64]
Interval = tuple[float, float]
Bounds = tuple[Floats, Floats]
"""Logarithms of the smallest and the largest weight that each token can have."""

TOLERANCE = 1e-5
"""Up to this margin a decision is a near-tie: float32 may decide it differently."""

ROUNDING = 2.0**-21 / TOLERANCE
"""How far a few float32 roundings move a scaled logit, relative to it and to the tolerance."""

LEAST = float(np.finfo(np.float64).min) / 2
"""Stands for the logarithm of 0 where infinities would meet."""

MARGINS = np.geomspace(1e-17, 0.5, 4096)
"""The margins that are distinguished."""


def margin_of(may_turn: Callable[[float], bool]) -> float:
    """The smallest relative change that may turn a decision; infinite if none does.

    Args:
        may_turn: whether a change of at most this much may turn it; must be monotonic.
    """
    return float([*MARGINS, math.inf][bisect_left(MARGINS, 1, key=may_turn)])


@frozen(eq=False)
class Law:
    """Logarithms of weights, with bounds on what rounding may make of them.

    Attributes:
        bounds: the bounds for a relative change of all inputs by the given amount; the exact law
            at 0. Computed on demand.
    """

    bounds: Callable[[float], Bounds]

    @property
    def log_p(self) -> Floats:
        """[V], -inf where the weight is 0."""
        return self.bounds(0.0)[1]

    def doubted(self, tolerance: float = TOLERANCE) -> Flags:
        """The tokens whose weight may be zero or not after a relative change: [V]."""
        low, high = self.bounds(tolerance)
        return np.isneginf(low) & ~np.isneginf(high)

    def doubted_mass(self, tolerance: float = TOLERANCE) -> float:
        """The largest mass that doubted tokens can have together."""
        return float(np.exp(self.bounds(tolerance)[1][self.doubted(tolerance)]).sum())


@frozen(eq=False)
class Adjustments:
    """The bias and penalties of one request."""

    bias: Mapping[int, float] = field(factory=dict)
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0


def is_usable(logits: Floats) -> bool:
    """Whether a row has no NaN, no +inf, and not only -inf."""
    return not np.isnan(logits).any() and bool(np.isfinite(logits.max()))


@np.errstate(over="ignore", invalid="ignore")
def adjust(raw: Floats, wanted: Adjustments, in_prompt: Flags, counts: Integers) -> Floats:
    """Apply the bias, then the penalties for tokens in the prompt and the output.

    Each operation is rounded to float32, which makes adjusted logits exact everywhere.
    """
    logits = raw.astype(np.float32)
    for token_id, bias in wanted.bias.items():
        if token_id < len(raw):
            logits[token_id] += np.float32(bias)
    in_output, repetition = counts > 0, np.float32(wanted.repetition)
    repeated = np.where(logits > 0, logits / repetition, logits * repetition)
    logits = np.where(in_prompt | in_output, repeated, logits)
    frequency, presence = np.float32(wanted.frequency), np.float32(wanted.presence)
    charged = logits - frequency * counts.astype(np.float32) - presence
    return np.where(in_output, charged, logits).astype(np.float64)


def forbid(logits: Floats, allowed: Flags | None) -> Floats:
    """Set forbidden logits to -inf, except NaN and +inf: these make a row unusable anywhere."""
    if allowed is None:
        return logits
    return np.where(allowed | np.isnan(logits) | (logits == np.inf), logits, -np.inf)


@np.errstate(over="ignore", invalid="ignore")
def relative(logits: Floats) -> Floats:
    """Logits minus the largest one; -inf where the difference overflows float32."""
    narrow = logits.astype(np.float32) - np.float32(logits.max())
    return np.where(narrow == -np.inf, -np.inf, logits - logits.max())


def law_of(logits: Floats, recipe: Recipe) -> Law:
    """The law that a recipe makes of a usable row."""
    if recipe.temperature == 0:
        return one_hot(int(logits.argmax()), len(logits))
    scaled = relative(logits) / recipe.temperature

    @cache
    def bounds(tolerance: float) -> Bounds:
        slack = tolerance * ROUNDING * np.where(np.isfinite(scaled), abs(scaled), 0.0)
        support = supported(logits, scaled, slack, recipe, tolerance)
        if support.accept.sum() == 1:
            alone = np.where(support.accept, 0.0, -np.inf)
            return alone, alone
        low = np.where(support.reject, -np.inf, scaled - slack)
        high = np.where(support.accept, scaled + slack, -np.inf)
        least, most = max(log_sum(low), LEAST), log_sum(high)
        # Half of the tolerance on each side of a comparison.
        return low - most - tolerance / 2, np.minimum(high + tolerance / 2 - least, 0.0)

    return Law(bounds)


def log_sum(log_weights: Floats) -> float:
    """The logarithm of the sum of weights, -inf if there are none."""
    return float(np.logaddexp.reduce(log_weights))


def one_hot(token_id: int, vocab_size: int) -> Law:
    """The law that is certain of one token; rounding cannot change it."""
    log_p = np.full(vocab_size, -np.inf)
    log_p[token_id] = 0.0
    return Law(lambda _: (log_p, log_p))


def place(law: Law, token_ids: Integers, vocab_size: int) -> Law:
    """The same law over other ids: entry i moves to token_ids[i]; ids out of range are dropped."""
    inside = token_ids < vocab_size

    @cache
    def bounds(tolerance: float) -> Bounds:
        low, high = placed = np.full((2, vocab_size), -np.inf)
        placed[:, token_ids[inside]] = np.stack(law.bounds(tolerance))[:, inside]
        return low, high

    return Law(bounds)


def log_ratio(p: Law, q: Law, token_id: int, tolerance: float) -> Interval:
    """The bounds of log p(x) - log q(x): -inf where p is 0, else huge where q is."""
    least, most = (float(bound[token_id]) for bound in p.bounds(tolerance))
    low, high = (max(float(bound[token_id]), LEAST) for bound in q.bounds(tolerance))
    return least - high, most - low


@frozen(eq=False)
class RowLogprobs:
    """Logprobs of one row.

    Attributes:
        values: [V].
        doubted: [V], tokens so close to a filter's edge that it may keep or cut them.
        logits: [V], the logits that the values were computed from.
    """

    values: Floats
    doubted: Flags
    logits: Floats

    @cached_property
    def orders(self) -> list[Integers]:
        """Both possible orders of the tokens that have weight, most likely first.

        Among equal values one puts the lowest id first; the other puts the larger logit first.
        """
        orders = np.argsort(-self.values, kind="stable"), np.lexsort((-self.logits, -self.values))
        return [order[self.values[order] > -np.inf] for order in orders]

    def certain(self, token_ids: Integers) -> Integers:
        """Those of some tokens that are not doubted."""
        return token_ids[~self.doubted[token_ids]]

    def is_close(self, token_id: int, value: float) -> bool:
        """Whether this is an acceptable float32 logprob of a token."""
        with np.errstate(over="ignore"):
            expected = float(np.float32(self.values[token_id]))
        return value == expected or abs(value - expected) <= self.tolerance(token_id)

    def tolerance(self, token_id: int) -> float:
        """The largest acceptable error of a float32 logprob."""
        if self.doubted.any():
            return math.inf
        value = float(self.values[token_id])
        return 1e-4 + 1e-5 * abs(value) if math.isfinite(value) else 0.0
