"""Block verification: the test of each draft token together with those before it."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ....core.policies import Block
from .law import Law
from .noise import Floats
from .residual import Scale, log_difference, residual
from .verdict import Verdict, below, greatest_log_ratio, least_log_ratio, log_ratio
from .view import RequestView


def block_verdict(view: RequestView, _: Block, row: int) -> Verdict:
    """Whether u < h for draft token row + 1."""
    count = row + 1

    def bounds(tolerance: float) -> tuple[float, float]:
        least, most = _product_bounds(view, count, tolerance)
        low = _log_h(view, count, least, partial(_least_left, tolerance=tolerance))
        return low, _log_h(view, count, most, partial(_most_left, tolerance=tolerance))

    exact = _log_h(view, count, _product(view, count, log_ratio), _left)
    return below(math.log(view.uniforms[row]), exact, bounds)


def scaled_residual(view: RequestView, row: int) -> Law:
    """max(P p - q, 0) after the first `row` draft tokens were accepted."""
    scale = Scale(_product(view, row, log_ratio), partial(_product_bounds, view, row))
    return residual(view.target_laws[row], view.draft_laws[row], view.drafts[row], scale)


def _product_bounds(view: RequestView, count: int, tolerance: float) -> tuple[float, float]:
    return (
        _product(view, count, partial(least_log_ratio, tolerance=tolerance)),
        _product(view, count, partial(greatest_log_ratio, tolerance=tolerance)),
    )


def _product(view: RequestView, count: int, ratio_of: Callable[[Law, Law, int], float]) -> float:
    """log P_count."""
    product = 0.0
    for row, drafted in enumerate(view.drafts[:count]):
        if product == -math.inf:
            break
        ratio = ratio_of(view.target_laws[row], view.draft_laws[row], drafted)
        product = min(0.0, product + ratio)
    return product


def _log_h(
    view: RequestView, count: int, log_product: float, left_of: Callable[[Law, Law, float], Floats]
) -> float:
    if count == len(view.drafts):
        return log_product
    left = left_of(view.target_laws[count], view.draft_laws[count], log_product)
    mass, rest = float(np.exp(left).sum()), -math.expm1(log_product)
    if mass == 0:
        return 0.0 if rest == 0 else -math.inf
    return math.log(mass) - math.log(mass + rest)


def _left(p: Law, q: Law, log_product: float) -> Floats:
    return log_difference(log_product + p.log_p, q.log_p)


def _least_left(p: Law, q: Law, log_product: float, tolerance: float) -> Floats:
    return log_difference(log_product + p.bounds(tolerance).low, q.bounds(tolerance).high)


def _most_left(p: Law, q: Law, log_product: float, tolerance: float) -> Floats:
    return log_difference(log_product + p.bounds(tolerance).high, q.bounds(tolerance).low)
