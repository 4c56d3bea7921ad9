"""Answers to one question of a policy: what they may be after a relative change of the inputs."""

import math
from collections.abc import Callable
from functools import cached_property

from attrs import field, frozen

from .law import Interval, Law


@frozen
class Possible:
    """What rounding may make of an answer; without any, one of the two."""

    accept: bool
    reject: bool


@frozen
class Verdict:
    """Whether one draft token passes its test.

    Attributes:
        possible: the answers that a relative change of the inputs may give.
    """

    possible: Callable[[float], Possible] = field(eq=False)

    @cached_property
    def accepted(self) -> bool:
        """The answer in float64."""
        return self.possible(0.0).accept

    def __or__(self, other: "Verdict") -> "Verdict":
        """Either of two reasons suffices."""

        def possible(tolerance: float) -> Possible:
            mine, theirs = self.possible(tolerance), other.possible(tolerance)
            return Possible(mine.accept or theirs.accept, mine.reject and theirs.reject)

        return Verdict(possible)

    def __and__(self, other: "Verdict") -> "Verdict":
        """Both conditions are needed."""

        def possible(tolerance: float) -> Possible:
            mine, theirs = self.possible(tolerance), other.possible(tolerance)
            return Possible(mine.accept and theirs.accept, mine.reject or theirs.reject)

        return Verdict(possible)


def certainly(accepted: bool) -> Verdict:
    """An answer without arithmetic."""
    return Verdict(lambda _: Possible(accepted, not accepted))


def below(value: float, threshold: Callable[[float], Interval]) -> Verdict:
    """Whether a value is below a threshold that moves inside bounds; all are logarithms."""

    def possible(tolerance: float) -> Possible:
        low, high = threshold(tolerance)
        return Possible(value - tolerance / 2 < high, value + tolerance / 2 >= low)

    return Verdict(possible)


def log_ratio(p: Law, q: Law, token_id: int, tolerance: float) -> Interval:
    """The bounds of log p(x) - log q(x): -inf where p is 0, else +inf where q is."""
    of_p, of_q = p.bounds(tolerance), q.bounds(tolerance)
    least = _minus(float(of_p.low[token_id]), float(of_q.high[token_id]))
    return least, _minus(float(of_p.high[token_id]), float(of_q.low[token_id]))


def _minus(log_p: float, log_q: float) -> float:
    return log_p if log_p == -math.inf else log_p - log_q
