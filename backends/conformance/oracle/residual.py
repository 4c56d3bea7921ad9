"""What is left for the recovered token: max(scale p - q, 0), and what to do if nothing is."""

from collections.abc import Callable

import numpy as np

from .law import Bounds, Interval, Law
from .noise import Floats


def unscaled(_: float) -> Interval:
    """The logarithm of the factor on p that most policies have."""
    return 0.0, 0.0


def residual(p: Law, q: Law, rejected: int, scale: Callable[[float], Interval] = unscaled) -> Law:
    """The law that a rejection draws from, not normalised.

    If no mass is left it is p without the rejected token, and p itself only if that is nothing too.
    """

    def bounds(tolerance: float) -> Bounds:
        left = difference(p, q, scale(tolerance), tolerance)
        if left.low.max() > -np.inf:
            return left
        instead = _without(p.bounds(tolerance).high, rejected)
        high = np.maximum(left.high, instead)
        # In exact arithmetic it is one or the other.
        exact = left.high if left.high.max() > -np.inf else instead
        return Bounds(left.low, high) if tolerance else Bounds(exact, exact)

    return Law(bounds)


def difference(p: Law, q: Law, scale: Interval, tolerance: float) -> Bounds:
    """log(scale p - q), -inf where that is not positive."""
    of_p, of_q = p.bounds(tolerance), q.bounds(tolerance)
    least, most = scale
    return Bounds(
        _log_difference(least + of_p.low, of_q.high), _log_difference(most + of_p.high, of_q.low)
    )


def _log_difference(larger: Floats, smaller: Floats) -> Floats:
    positive = larger > smaller
    gap = np.where(positive, smaller, -np.inf) - np.where(positive, larger, 0.0)
    share = -np.expm1(gap)
    return np.where(positive, larger + np.log(np.where(positive, share, 1.0)), -np.inf)


def _without(log_p: Floats, rejected: int) -> Floats:
    others = log_p.copy()
    others[rejected] = -np.inf
    return others if others.max() > -np.inf else log_p
