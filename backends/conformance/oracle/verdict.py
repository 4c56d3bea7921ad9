"""Answers to a question of a policy: what they may be after a relative change of the inputs."""

from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Interval = tuple[float, float]


@frozen(eq=False)
class Possible:
    """Which answers there may be: flags, or arrays of them over the vocabulary.

    Attributes:
        accept: whether it may be yes.
        reject: whether it may be no.
    """

    accept: Any
    reject: Any

    @classmethod
    def of(cls, exact: Any, doubted: Any = False) -> "Possible":
        """An answer in float64, and where the other one may be given, too."""
        return cls(exact | doubted, np.logical_not(exact) | doubted)

    @property
    def doubted(self) -> Any:
        """Whether either answer may be given."""
        return self.accept & self.reject

    def __getitem__(self, token_id: int) -> "Possible":
        """That on one token of the vocabulary."""
        return Possible(self.accept[token_id], self.reject[token_id])

    def __or__(self, other: "Possible") -> "Possible":
        """Either of two reasons suffices."""
        return Possible(self.accept | other.accept, self.reject & other.reject)

    def __and__(self, other: "Possible") -> "Possible":
        """Both conditions are needed."""
        return Possible(self.accept & other.accept, self.reject | other.reject)


def below(value: float, threshold: Interval, tolerance: float) -> Possible:
    """Whether a value is below a threshold that is inside bounds; all are logarithms."""
    low, high = threshold
    return Possible(value - tolerance / 2 < high, value + tolerance / 2 >= low)
