"""The reference's random words made where the requests are, so that a GPU need not wait for a host.

A test holds them against the reference's, word for word.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from acceptor.backends.reference import draw
from acceptor.core import Stream
from acceptor.core.randomness import Level

_MASK = 0xFFFFFFFF
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


@contextmanager
def words_made_on(device: torch.device) -> Iterator[None]:
    """Let the reference draw with `words_on_device`, unless it is on the host anyway."""
    with pytest.MonkeyPatch.context() as patch:
        if device.type != "cpu":
            patch.setattr(draw, "random_words", words_on_device)
        yield


def words_on_device(
    seeds: Tensor,
    positions: Tensor,
    draft_indices: Tensor,
    stream: Stream,
    level: Level,
    candidates: Tensor,
) -> Tensor:
    """See `acceptor.core.randomness.random_words`."""
    groups = candidates[:, ::4] >> 2
    what = torch.full_like(groups, 4 * stream + level)
    counter = (groups, (positions[:, None] & _MASK), what, draft_indices[:, None] & _MASK)
    words = _philox(counter, seeds[:, None] & _MASK, (seeds[:, None] >> 32) & _MASK)
    return torch.stack(words, dim=-1).flatten(1)[:, : candidates.shape[1]]


def _philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], low_key: Tensor, high_key: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, second, third, fourth = counter
    for _ in range(10):
        # Signed products wrap around to the same 64 bits.
        left, right = first * _FACTORS[0], third * _FACTORS[1]
        first, second = (right >> 32 & _MASK) ^ second ^ low_key, right & _MASK
        third, fourth = (left >> 32 & _MASK) ^ fourth ^ high_key, left & _MASK
        low_key = (low_key + _KEY_STEPS[0]) & _MASK
        high_key = (high_key + _KEY_STEPS[1]) & _MASK
    return first, second, third, fourth
