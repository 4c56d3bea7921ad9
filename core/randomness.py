"""The randomness contract: which random word decides what.

Every random word is a pure function of a request's seed and of *what* is decided (stream, position,
draft index, candidate). No generator object exists, so results cannot depend on batch slot, tile,
launch shape or call order.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1,
2, 3", SC 2011).
"""

from enum import IntEnum, unique

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]
"""Unsigned 32-bit words, in 64 bits so that products do not overflow."""

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.array((0xD2511F53, 0xCD9E8D57), dtype=np.uint64)
_ROUNDS = 10
_KEY_STEPS = np.arange(_ROUNDS, dtype=np.uint64)[:, None] * np.array(
    (0x9E3779B9, 0xBB67AE85), dtype=np.uint64
)


@unique
class Stream(IntEnum):
    """What a random word is used for; it is part of the Philox counter."""

    TARGET = 0
    """The target's own sample at a row. Keyed by position alone: emitted there at most once."""
    DRAFT = 1
    """Drafting, whenever the policy tests the target's law against the draft's."""
    ACCEPT = 2
    """The acceptance uniform of a draft token."""
    RECOVER = 3
    """The token drawn from the residual after a rejection."""


@unique
class Level(IntEnum):
    """Which of the two races of a draw, see `acceptor.core.race`."""

    BLOCK = 0
    TOKEN = 1


def philox4x32(counter: Words, key: Words) -> Words:
    """Ten rounds of Philox4x32.

    Computed by NumPy on the host: torch has no unsigned 64-bit product, and a reference draws too
    few words to miss a GPU.

    Args:
        counter: [4, ...] words.
        key: [2, ...] words, broadcasts against the counter.

    Returns:
        [4, ...] random words.
    """
    # Words 0 and 2 are multiplied, words 1 and 3 are not; the halves of the products change places.
    even, odd = counter[::2], counter[1::2]
    ones = (1,) * (even.ndim - 1)
    multipliers = _MULTIPLIERS.reshape(2, *ones)
    for round_key in (key + _KEY_STEPS.reshape(_ROUNDS, 2, *ones)) & _MASK:
        products = even * multipliers
        even = (products >> _HALF)[::-1] ^ odd ^ round_key
        odd = (products & _MASK)[::-1]
    words = np.empty(counter.shape, dtype=np.uint64)
    words[::2], words[1::2] = even, odd
    return words


def random_words(
    seeds: Tensor,
    positions: Tensor,
    draft_indices: Tensor,
    stream: Stream,
    level: Level,
    candidates: Tensor,
) -> Tensor:
    """The random words that decide among candidates.

    The Philox key is the seed; the counter is (candidate // 4, position, 4 * stream + level,
    draft index) and the candidate's word is number candidate % 4 of the four.

    Args:
        seeds: [num_rows] int64, the 64 bits of each row's seed.
        positions: [num_rows] int, absolute sequence position that each row decides, mod 2**32.
        draft_indices: [num_rows] int, 1-based place in the draft; 0 for `Stream.TARGET`.
        stream: what the words are used for.
        level: which race of the draw.
        candidates: [num_rows, num_candidates] int64, consecutive ids, the first a multiple of 4.

    Returns:
        [num_rows, num_candidates] int64, words in [0, 2**32).
    """
    groups = _on_host(candidates[:, ::4]) >> np.uint64(2)
    counter = np.empty((4, *groups.shape), dtype=np.uint64)
    counter[0] = groups
    counter[1] = _on_host(positions)[:, None] & _MASK
    counter[2] = 4 * stream + level
    counter[3] = _on_host(draft_indices)[:, None] & _MASK
    seed = _on_host(seeds)[:, None]
    words = philox4x32(counter, np.array((seed & _MASK, seed >> _HALF)))
    by_candidate = words.transpose(1, 2, 0).reshape(len(seed), 4 * groups.shape[1])
    in_use = by_candidate[:, : candidates.shape[-1]].view(np.int64)
    return torch.from_numpy(in_use).to(seeds.device)


def _on_host(integers: Tensor) -> Words:
    return integers.cpu().long().numpy().view(np.uint64)


def exponential(words: Tensor) -> Tensor:
    """Standard exponentials with full relative resolution in the small tail, float64.

    The winner of a race is decided by the smallest exponentials, so it is -log1p(-u) and not
    -log(u), which is coarse exactly there.

    Args:
        words: [...] int64 in [0, 2**32).
    """
    return -torch.log1p(-(words.to(torch.float64) + 0.5) * 2.0**-32)


def acceptance_uniform(words: Tensor) -> Tensor:
    """Uniforms strictly inside (0, 1): exact in float32 too, so they round to neither 0 nor 1.

    Args:
        words: [...] int64 in [0, 2**32).
    """
    return ((words >> 9).to(torch.float64) + 0.5) * 2.0**-23
