"""Answers to one question of a policy, with what else rounding could have answered.

It refuses to average: an answer is certain or it is not.
"""

import math
from collections.abc import Callable
from functools import cached_property

from attrs import field, frozen

from .law import Law


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
        find_possible: computes what float32 may answer.
        find_margin: computes how close the question was.
    """

    accepted: bool
    find_possible: Callable[[], Possible] = field(eq=False)
    find_margin: Callable[[], float] = field(eq=False, default=lambda: math.inf)

    @cached_property
    def possible(self) -> Possible:
        """What float32 may answer; only computed when something differs."""
        return self.find_possible()

    @property
    def margin(self) -> float:
        """The relative distance of what was compared; infinite if nothing was."""
        return self.find_margin()

    def __or__(self, other: "Verdict") -> "Verdict":
        """Either of two reasons suffices."""
        return Verdict(
            self.accepted or other.accepted,
            lambda: Possible(
                self.possible.accept or other.possible.accept,
                self.possible.reject and other.possible.reject,
            ),
            lambda: min(self.margin, other.margin),
        )

    def __and__(self, other: "Verdict") -> "Verdict":
        """Both conditions are needed."""
        return Verdict(
            self.accepted and other.accepted,
            lambda: Possible(
                self.possible.accept and other.possible.accept,
                self.possible.reject or other.possible.reject,
            ),
            lambda: min(self.margin, other.margin),
        )


def certainly(accepted: bool) -> Verdict:
    """An answer without arithmetic."""
    return Verdict(accepted, lambda: Possible(accepted, not accepted))


def below(value: float, exact: float, bounds: Callable[[], tuple[float, float]]) -> Verdict:
    """Whether a value is below a threshold that rounding moves inside bounds; all logarithms."""

    def possible() -> Possible:
        low, high = bounds()
        return Possible(value < high, value >= low)

    def margin() -> float:
        comparable = math.isfinite(value) and math.isfinite(exact)
        return abs(value - exact) if comparable else math.inf

    return Verdict(value < exact, possible, margin)


def log_ratio(p: Law, q: Law, token_id: int) -> float:
    """log p(x) - log q(x): -inf where p is 0, else +inf where q is."""
    return _minus(float(p.log_p[token_id]), float(q.log_p[token_id]))


def least_log_ratio(p: Law, q: Law, token_id: int) -> float:
    """The lower bound of `log_ratio`."""
    return _minus(float(p.bounds.low[token_id]), float(q.bounds.high[token_id]))


def greatest_log_ratio(p: Law, q: Law, token_id: int) -> float:
    """The upper bound of `log_ratio`."""
    return _minus(float(p.bounds.high[token_id]), float(q.bounds.low[token_id]))


def _minus(log_p: float, log_q: float) -> float:
    return log_p if log_p == -math.inf else log_p - log_q
