"""Answers to a question of a policy: what they may be after a relative change of the inputs."""

import math
from collections.abc import Callable
from functools import cached_property
from operator import and_, or_
from typing import Any

import numpy as np
from attrs import field, frozen

from .law import Interval, Law

Possible = tuple[Any, Any]
"""Whether an answer may be yes, and whether it may be no: flags, or arrays of them."""


@frozen
class Verdict:
    """Whether one draft token passes its test, or which tokens of the vocabulary would.

    Attributes:
        possible: the answers that a relative change of the inputs may give; without any, one.
    """

    possible: Callable[[float], Possible] = field(eq=False)

    @classmethod
    def of(cls, exact: Any, doubted: Callable[[float], Any]) -> "Verdict":
        """An answer in float64, and where a relative change may give the other one."""

        def possible(tolerance: float) -> Possible:
            either = doubted(tolerance) if tolerance else False
            return exact | either, np.logical_not(exact) | either

        return cls(possible)

    @cached_property
    def accepted(self) -> Any:
        """The answer in float64."""
        return self.possible(0.0)[0]

    def doubted(self, tolerance: float) -> Any:
        """Whether such a change may give either answer."""
        accept, reject = self.possible(tolerance)
        return accept & reject

    def __getitem__(self, token_id: int) -> "Verdict":
        """That on one token of the vocabulary."""

        def possible(tolerance: float) -> Possible:
            accept, reject = self.possible(tolerance)
            return accept[token_id], reject[token_id]

        return Verdict(possible)

    def __or__(self, other: "Verdict") -> "Verdict":
        """Either of two reasons suffices."""
        return self._with(other, or_, and_)

    def __and__(self, other: "Verdict") -> "Verdict":
        """Both conditions are needed."""
        return self._with(other, and_, or_)

    def _with(
        self, other: "Verdict", accept: Callable[..., Any], reject: Callable[..., Any]
    ) -> "Verdict":
        def possible(tolerance: float) -> Possible:
            answers = zip(self.possible(tolerance), other.possible(tolerance), strict=True)
            accepted, rejected = answers
            return accept(*accepted), reject(*rejected)

        return Verdict(possible)


def certainly(accepted: Any) -> Verdict:
    """An answer without arithmetic."""
    return Verdict(lambda _: (accepted, np.logical_not(accepted)))


def below(value: float, threshold: Callable[[float], Interval]) -> Verdict:
    """Whether a value is below a threshold that moves inside bounds; all are logarithms."""

    def possible(tolerance: float) -> Possible:
        low, high = threshold(tolerance)
        return value - tolerance / 2 < high, value + tolerance / 2 >= low

    return Verdict(possible)


def log_ratio(p: Law, q: Law, token_id: int, tolerance: float) -> Interval:
    """The bounds of log p(x) - log q(x): -inf where p is 0, else +inf where q is."""
    of_p, of_q = p.bounds(tolerance), q.bounds(tolerance)
    least = _minus(float(of_p.low[token_id]), float(of_q.high[token_id]))
    return least, _minus(float(of_p.high[token_id]), float(of_q.low[token_id]))


def _minus(log_p: float, log_q: float) -> float:
    return log_p if log_p == -math.inf else log_p - log_q
