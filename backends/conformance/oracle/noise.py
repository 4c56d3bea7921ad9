"""The random numbers of the contract, derived anew from its text."""

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

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


@frozen
class Noise:
    """All random numbers of one request."""

    seed: int

    def uniforms(self, first_position: int, count: int) -> Floats:
        """What draft tokens 1 … count are tested with."""
        rows = np.arange(count, dtype=np.uint64)
        zeros = np.zeros_like(rows)
        counter = (zeros, rows + first_position, zeros + 4 * ACCEPT, rows + 1)
        words, *_ = philox(counter, self.seed)
        return ((words >> 9).astype(np.float64) + 0.5) / 2**23

    def exponentials(
        self, stream: int, position: int, draft_index: int, level: int, first: int, count: int
    ) -> Floats:
        """Of candidates first … first + count - 1 in one race; first is a multiple of 4."""
        groups = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
        zeros = np.zeros_like(groups)
        index = 0 if stream == TARGET else draft_index
        counter = (groups, zeros + position, zeros + (4 * stream + level), zeros + index)
        words = np.stack(philox(counter, self.seed), axis=1).ravel()[:count]
        return -np.log1p(-(words.astype(np.float64) + 0.5) / 2**32)
