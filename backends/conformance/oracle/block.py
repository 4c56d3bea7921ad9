"""Block verification: the test of each draft token together with those before it."""

import math
from functools import partial

import numpy as np

from ....core.policies import Block
from .law import Interval, Law
from .noise import Floats
from .residual import difference, residual
from .verdict import Verdict, below, log_ratio
from .view import RequestView


def block_verdict(view: RequestView, _: Block, row: int) -> Verdict:
    """Whether u < h for draft token row + 1."""
    return below(math.log(view.uniforms[row]), partial(_log_h, view, row + 1))


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
