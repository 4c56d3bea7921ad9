"""What is left for the recovered token: max(scale p - q, 0), and what to do if nothing is.

Block verification also tests each draft token, together with those before it, by what is left.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ....core.policies import Block
from .filters import Floats
from .law import Bounds, Interval, Law
from .verdict import Possible, below, log_ratio
from .view import RequestView


def residual(
    p: Law, q: Law, rejected: int, scale: Callable[[float], Interval] = lambda _: (0.0, 0.0)
) -> Law:
    """The law that a rejection draws from, not normalised; the scale is a logarithm.

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


def block_verdict(view: RequestView, _: Block, row: int, tolerance: float) -> Possible:
    """Whether u < h for draft token row + 1."""
    return below(math.log(view.uniforms[row]), _log_h(view, row + 1, tolerance), tolerance)


def scaled_residual(view: RequestView, row: int) -> Law:
    """max(P p - q, 0) after the first `row` draft tokens were accepted."""
    laws = view.target_laws[row], view.draft_laws[row]
    return residual(*laws, view.drafts[row], partial(_log_product, view, row))


def _log_product(view: RequestView, count: int, tolerance: float) -> Interval:
    """log P_count."""
    low, high = 0.0, 0.0
    for row, drafted in enumerate(view.drafts[:count]):
        least, most = log_ratio(view.target_laws[row], view.draft_laws[row], drafted, tolerance)
        low = low if low == -math.inf else min(0.0, low + least)
        high = high if high == -math.inf else min(0.0, high + most)
    return low, high


def _log_h(view: RequestView, count: int, tolerance: float) -> Interval:
    products = _log_product(view, count, tolerance)
    if count == len(view.drafts):
        return products
    left = difference(view.target_laws[count], view.draft_laws[count], products, tolerance)
    return _share_left(left.low, products[0]), _share_left(left.high, products[1])


def _share_left(left: Floats, log_product: float) -> float:
    mass, rest = float(np.exp(left).sum()), -math.expm1(log_product)
    if mass == 0:
        return 0.0 if rest == 0 else -math.inf
    return math.log(mass) - math.log(mass + rest)
