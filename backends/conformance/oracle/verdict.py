"""Answers to one question of a policy, with what else rounding could have answered."""

import math
from collections.abc import Callable

from attrs import field, frozen

from .law import Law, margin_of


@frozen
class Possible:
    """What rounding may make of an answer."""

    accept: bool
    reject: bool


@frozen
class Verdict:
    """Whether one draft token passes its test.

    Attributes:
        accepted: the answer in float64.
        possible: the answers that a relative change of the inputs may give.
    """

    accepted: bool
    possible: Callable[[float], Possible] = field(eq=False)

    @property
    def margin(self) -> float:
        """The smallest change that may turn it."""
        if self.accepted:
            return margin_of(lambda tolerance: self.possible(tolerance).reject)
        return margin_of(lambda tolerance: self.possible(tolerance).accept)

    def __or__(self, other: "Verdict") -> "Verdict":
        """Either of two reasons suffices."""

        def possible(tolerance: float) -> Possible:
            mine, theirs = self.possible(tolerance), other.possible(tolerance)
            return Possible(mine.accept or theirs.accept, mine.reject and theirs.reject)

        return Verdict(self.accepted or other.accepted, possible)

    def __and__(self, other: "Verdict") -> "Verdict":
        """Both conditions are needed."""

        def possible(tolerance: float) -> Possible:
            mine, theirs = self.possible(tolerance), other.possible(tolerance)
            return Possible(mine.accept and theirs.accept, mine.reject or theirs.reject)

        return Verdict(self.accepted and other.accepted, possible)


def certainly(accepted: bool) -> Verdict:
    """An answer without arithmetic."""
    return Verdict(accepted, lambda _: Possible(accepted, not accepted))


def below(value: float, exact: float, bounds: Callable[[float], tuple[float, float]]) -> Verdict:
    """Whether a value is below a threshold that moves inside bounds; all are logarithms."""

    def possible(tolerance: float) -> Possible:
        low, high = bounds(tolerance)
        return Possible(value - tolerance / 2 < high, value + tolerance / 2 >= low)

    return Verdict(value < exact, possible)


def log_ratio(p: Law, q: Law, token_id: int) -> float:
    """log p(x) - log q(x): -inf where p is 0, else +inf where q is."""
    return _minus(float(p.log_p[token_id]), float(q.log_p[token_id]))


def least_log_ratio(p: Law, q: Law, token_id: int, tolerance: float) -> float:
    """The lower bound of `log_ratio`."""
    low, high = p.bounds(tolerance).low[token_id], q.bounds(tolerance).high[token_id]
    return _minus(float(low), float(high))


def greatest_log_ratio(p: Law, q: Law, token_id: int, tolerance: float) -> float:
    """The upper bound of `log_ratio`."""
    high, low = p.bounds(tolerance).high[token_id], q.bounds(tolerance).low[token_id]
    return _minus(float(high), float(low))


def _minus(log_p: float, log_q: float) -> float:
    return log_p if log_p == -math.inf else log_p - log_q
