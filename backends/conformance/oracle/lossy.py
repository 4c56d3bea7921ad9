"""What the lossy policies accept, token by token, and the total variation that follows.

It refuses to sample: everything is summed over the vocabulary.
"""

import math
from collections.abc import Callable

import numpy as np
from attrs import field, frozen

from ....core.policies import RelaxedTopN, Typical
from .filters import Flags
from .law import Law

SMALLEST_FLOAT32 = 2.0**-126
"""Below this a probability may be 0 in a backend."""


@frozen
class Accepted:
    """Which tokens would survive.

    Attributes:
        exact: [V], in float64.
        doubted: computes for which of them a relative change may answer otherwise.
    """

    exact: Flags = field(eq=False)
    doubted: Callable[[float], Flags] = field(eq=False)


def entropy(law: Law) -> float:
    """In nats."""
    log_p = np.where(law.log_p > -np.inf, law.log_p, 0.0)
    return -float((np.exp(law.log_p) * log_p).sum())


def entropy_width(law: Law, tolerance: float) -> float:
    """How far it may move; a token in doubt is worth about its own share of it."""
    width = 2 * tolerance * max(1.0, entropy(law))
    doubted = law.doubted_mass
    return width + (doubted * (2 + abs(math.log(doubted)) + entropy(law)) if doubted else 0.0)


def typical_tokens(law: Law, policy: Typical) -> Accepted:
    """p > min(epsilon, delta exp(-H))."""

    def edge(shift: float) -> float:
        return min(policy.epsilon, policy.delta * math.exp(shift - entropy(law)))

    def doubted(tolerance: float) -> Flags:
        bounds, width = law.bounds(tolerance), entropy_width(law, tolerance)
        low, high = edge(-width), max(edge(width), SMALLEST_FLOAT32)
        return (bounds.high > _log(low)) & (bounds.low <= _log(high))

    return Accepted(law.log_p > _log(edge(0.0)), doubted)


def relaxed_tokens(law: Law, policy: RelaxedTopN) -> Accepted:
    """The n most likely, ties included, that are at most delta less likely than the first."""
    p = np.exp(law.log_p)
    nth = np.sort(law.log_p)[::-1][min(policy.top_n, len(p)) - 1]
    edge = p.max() - policy.delta

    def doubted(tolerance: float) -> Flags:
        bounds = law.bounds(tolerance)
        width = np.exp(bounds.high) - np.exp(bounds.low)
        around_nth = abs(p - np.exp(nth)) <= width
        if not (around_nth & (law.log_p != nth)).any():
            around_nth[:] = False
        around_edge = abs(p - edge) <= tolerance * p.max() + width
        around_edge &= ~((policy.delta == 0) & (p == p.max()))
        tiny = (law.log_p > -np.inf) & (p < SMALLEST_FLOAT32)
        doubted: Flags = around_nth | around_edge | tiny
        return doubted

    return Accepted((law.log_p >= nth) & (p >= edge) & (law.log_p > -np.inf), doubted)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def total_variation(p: Law, q: Law, accepted: Flags) -> float:
    """Between p and the law q a + p (1 - sum(q a))."""
    survived = np.exp(q.log_p) * accepted
    return float(abs(survived - np.exp(p.log_p) * survived.sum()).sum() / 2)
