"""A draw of the contract, and values that are computed for a row when they are first asked for."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from attrs import field, frozen

from .law import Law
from .noise import BLOCK_LEVEL, TOKEN_LEVEL, Floats, Noise

Value = TypeVar("Value")


class PerRow(dict[int, Value]):
    """A list without a length whose entries come into being when looked at."""

    def __init__(self, compute: Callable[[int], Value]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, row: int) -> Value:
        self[row] = value = self.compute(row)
        return value


def per_row(compute: Callable[[Any, int], Value]) -> "cached_property[PerRow[Value]]":
    """Make an attribute that is indexed by rows of a method that computes one."""
    return cached_property(lambda owner: PerRow(partial(compute, owner)))


BLOCK_SIZE = 512


@frozen
class Draw:
    """A token drawn from a law, lowest id on a tie.

    Attributes:
        law: what it is drawn from.
        noise: the request's random numbers.
        key: stream, position and draft index, which tell whose turn it is.
    """

    law: Law = field(eq=False)
    noise: Noise
    key: tuple[int, int, int]

    @cached_property
    def token_id(self) -> int:
        """The winner."""
        block = int(self._block_scores(self.law.log_p).argmax())
        return block * BLOCK_SIZE + int(self._token_scores(self.law.log_p, block).argmax())

    def could_be(self, token_id: int, tolerance: float) -> bool:
        """Whether a relative change of the weights may let this token win."""
        if not 0 <= token_id < len(self.law.log_p):
            return False
        bounds = self.law.bounds(tolerance)
        return self._beats(token_id, bounds.high, bounds.low, np.greater_equal)

    def is_certain(self, tolerance: float) -> bool:
        """Whether no such change can let another token win."""
        bounds = self.law.bounds(tolerance)
        return self._beats(self.token_id, bounds.low, bounds.high, np.greater)

    def _beats(
        self, token_id: int, own: Floats, others: Floats, compare: Callable[[float, float], bool]
    ) -> bool:
        """Whether a token wins both races with its own weight against the others' weights."""
        block, place = divmod(token_id, BLOCK_SIZE)
        races = (
            (block, self._block_scores(own), self._block_scores(others)),
            (place, self._token_scores(own, block), self._token_scores(others, block)),
        )
        return all(
            scores[here] > -np.inf
            and compare(scores[here], np.delete(against, here).max(initial=-np.inf))
            for here, scores, against in races
        )

    @property
    def num_races(self) -> int:
        """Among blocks, if there are several, and inside one."""
        return 1 + (len(self.law.log_p) > BLOCK_SIZE)

    def _block_scores(self, log_weights: Floats) -> Floats:
        masses = block_masses(log_weights)
        return masses if len(masses) == 1 else masses - self._log_block_noise

    def _token_scores(self, log_weights: Floats, block: int) -> Floats:
        first = block * BLOCK_SIZE
        return log_weights[first : first + BLOCK_SIZE] - self._log_token_noise[block]

    @per_row
    def _log_token_noise(self, block: int) -> Floats:
        first = block * BLOCK_SIZE
        count = min(BLOCK_SIZE, len(self.law.log_p) - first)
        return np.log(self.noise.exponentials(*self.key, TOKEN_LEVEL, first, count))

    @cached_property
    def _log_block_noise(self) -> Floats:
        num_blocks = -(-len(self.law.log_p) // BLOCK_SIZE)
        return np.log(self.noise.exponentials(*self.key, BLOCK_LEVEL, 0, num_blocks))


def block_masses(log_weights: Floats) -> Floats:
    """The logarithm of each block's mass, -inf where it is empty."""
    starts = np.arange(0, len(log_weights), BLOCK_SIZE)
    highest = np.maximum.reduceat(log_weights, starts)
    anchor = np.where(np.isfinite(highest), highest, 0.0)
    relative = log_weights - np.repeat(anchor, BLOCK_SIZE)[: len(log_weights)]
    with np.errstate(divide="ignore"):
        return anchor + np.log(np.add.reduceat(np.exp(relative), starts))
