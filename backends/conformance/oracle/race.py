"""The contract's random numbers, written again from its text, and draws that use them."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from .filters import Floats
from .law import Law

Words = NDArray[np.uint64]

BLOCK_SIZE = 512
TARGET, DRAFT, ACCEPT, RECOVER = range(4)
BLOCK_LEVEL, TOKEN_LEVEL = range(2)

_LOW_32_BITS = 0xFFFFFFFF
_LEFT_FACTOR, _RIGHT_FACTOR = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(_LOW_32_BITS)


def philox(counter: tuple[Words, Words, Words, Words], seed: int) -> tuple[Words, ...]:
    """Philox4x32-10 with the 64-bit seed as its key, low half first."""
    first, second, third, fourth = counter
    low_key, high_key = seed & _LOW_32_BITS, seed >> 32
    for _ in range(10):
        left, right = first * _LEFT_FACTOR, third * _RIGHT_FACTOR
        first, second = (right >> _HALF) ^ second ^ np.uint64(low_key), right & _LOW_HALF
        third, fourth = (left >> _HALF) ^ fourth ^ np.uint64(high_key), left & _LOW_HALF
        low_key = (low_key + 0x9E3779B9) & _LOW_32_BITS
        high_key = (high_key + 0xBB67AE85) & _LOW_32_BITS
    return first, second, third, fourth


def uniforms(seed: int, first_position: int, count: int) -> Floats:
    """The acceptance uniforms of draft tokens 1 … count."""
    rows = np.arange(count, dtype=np.uint64)
    zeros = np.zeros_like(rows)
    positions = (rows + (first_position & _LOW_32_BITS)) & _LOW_HALF
    counter = (zeros, positions, zeros + 4 * ACCEPT, rows + 1)
    words, *_ = philox(counter, seed)
    return ((words >> 9).astype(np.float64) + 0.5) / 2**23


def exponentials(
    seed: int, stream: int, position: int, draft_index: int, level: int, first: int, count: int
) -> Floats:
    """Exponentials of candidates first … first + count - 1; first is a multiple of 4."""
    groups = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    zeros = np.zeros_like(groups)
    index = 0 if stream == TARGET else draft_index
    counter = (
        groups,
        zeros + (position & _LOW_32_BITS),
        zeros + (4 * stream + level),
        zeros + index,
    )
    words = np.stack(philox(counter, seed), axis=1).ravel()[:count]
    return -np.log1p(-(words.astype(np.float64) + 0.5) / 2**32)


@frozen
class Draw:
    """A token drawn from a law, lowest id on a tie.

    Attributes:
        law: the law it is drawn from.
        key: seed, stream, position and draft index, which select the random numbers.
    """

    law: Law = field(eq=False)
    key: tuple[int, int, int, int]

    @cached_property
    def token_id(self) -> int:
        """The winning token."""
        block = int(self._block_scores(self.law.log_p).argmax())
        return block * BLOCK_SIZE + int(self._token_scores(self.law.log_p, block).argmax())

    def could_be(self, token_id: int, tolerance: float) -> bool:
        """Whether this token may win after a relative change of the weights."""
        if not 0 <= token_id < len(self.law.log_p):
            return False
        low, high = self.law.bounds(tolerance)
        return self._beats(token_id, high, low, np.greater_equal)

    def is_certain(self, tolerance: float) -> bool:
        """Whether no other token can win after such a change."""
        low, high = self.law.bounds(tolerance)
        return self._beats(self.token_id, low, high, np.greater)

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
        """Two if there are several blocks to choose from, else one."""
        return 1 + (len(self.law.log_p) > BLOCK_SIZE)

    def _block_scores(self, log_weights: Floats) -> Floats:
        starts = np.arange(0, len(log_weights), BLOCK_SIZE)
        return self._scores(np.logaddexp.reduceat(log_weights, starts), BLOCK_LEVEL, 0)

    def _token_scores(self, log_weights: Floats, block: int) -> Floats:
        first = block * BLOCK_SIZE
        return self._scores(log_weights[first : first + BLOCK_SIZE], TOKEN_LEVEL, first)

    def _scores(self, log_weights: Floats, level: int, first: int) -> Floats:
        return log_weights - np.log(exponentials(*self.key, level, first, len(log_weights)))
