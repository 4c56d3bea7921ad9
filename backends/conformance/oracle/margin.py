"""How close a decision was: the smallest relative change of its inputs that could turn it.

One definition for all decisions. It refuses to look at scores: where p - q cancels, a tiny change
of p turns a race that was won by far.
"""

import math
from collections.abc import Callable

TOLERANCE = 1e-5
"""Up to this margin a decision is a near-tie: float32 may decide it otherwise."""

LEAST, MOST = 1e-17, 0.5


def margin_of(may_turn: Callable[[float], bool]) -> float:
    """The smallest relative change at which something may turn; infinite if none does.

    Args:
        may_turn: whether a change up to so much may turn it; once true, true for more.
    """
    if not may_turn(MOST):
        return math.inf
    low, high = math.log(LEAST), math.log(MOST)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if may_turn(math.exp(middle)) else (middle, high)
    return math.exp(high)
