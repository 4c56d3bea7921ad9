"""What is left for the recovered token: max(scale p - q, 0), and what to do if nothing is."""

from collections.abc import Callable

import numpy as np
from attrs import frozen

from .law import Bounds, Law
from .noise import Floats


def _one(_: float) -> tuple[float, float]:
    return 0.0, 0.0


@frozen
class Scale:
    """The logarithm of the factor on p, and its bounds for a relative change."""

    log: float = 0.0
    bounds: Callable[[float], tuple[float, float]] = _one


UNSCALED = Scale()


def residual(p: Law, q: Law, rejected: int, scale: Scale = UNSCALED) -> Law:
    """The law that a rejection draws from, not normalised.

    If no mass is left it is p without the rejected token, and p itself only if that is nothing too.
    """
    left = log_difference(scale.log + p.log_p, q.log_p)
    if left.max() == -np.inf:
        left = _without(p.log_p, rejected)

    def bounds(tolerance: float) -> Bounds:
        of_p, of_q = p.bounds(tolerance), q.bounds(tolerance)
        least, most = scale.bounds(tolerance)
        low = log_difference(least + of_p.low, of_q.high)
        high = log_difference(most + of_p.high, of_q.low)
        if low.max() == -np.inf:
            high = np.maximum(high, _without(of_p.high, rejected))
        return Bounds(low, high)

    return Law(left, bounds)


def log_difference(larger: Floats, smaller: Floats) -> Floats:
    """log(exp larger - exp smaller), -inf where that is not positive."""
    positive = larger > smaller
    difference = np.where(positive, smaller, -np.inf) - np.where(positive, larger, 0.0)
    share = -np.expm1(difference)
    return np.where(positive, larger + np.log(np.where(positive, share, 1.0)), -np.inf)


def _without(log_p: Floats, rejected: int) -> Floats:
    others = log_p.copy()
    others[rejected] = -np.inf
    return others if others.max() > -np.inf else log_p
