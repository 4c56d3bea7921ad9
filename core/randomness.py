"""The randomness contract: which random word decides what.

Every random word is a pure function of a request's seed and of *what* is decided (stream, position,
draft index, candidate). No generator object exists, so results cannot depend on batch slot, tile,
launch shape or call order.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1,
2, 3", SC 2011).
"""

from enum import IntEnum, unique

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


@unique
class Stream(IntEnum):
    """The use of a random word; it is part of the Philox counter."""

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


def philox4x32(counter: Tensor, key: Tensor) -> Tensor:
    """Ten rounds of Philox4x32.

    Words are int64 in [0, 2**32). A product of two wraps at 2**64, and its bits are the right ones.

    Args:
        counter: [4, ...] words.
        key: [2, ...] words, broadcasts against the counter.

    Returns:
        [4, ...] random words.
    """
    ones = (1,) * (counter.ndim - 1)
    multipliers, key_step = (
        counter.new_tensor(pair).view(2, *ones) for pair in (_MULTIPLIERS, _KEY_STEPS)
    )
    # Words 0 and 2 are multiplied, words 1 and 3 are not; the products swap their halves. Only the
    # lower half of `odd` counts.
    even, odd = counter[::2], counter[1::2]
    for _ in range(_ROUNDS):
        products = (even * multipliers).flip(0)
        even = ((products >> 32) ^ odd ^ key) & _MASK
        odd, key = products, key + key_step
    return torch.stack((even, odd & _MASK), dim=1).flatten(0, 1)


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
    groups = candidates[:, ::4] >> 2
    kind = torch.full_like(seeds, 4 * stream + level)
    of_rows = torch.stack((positions, kind, draft_indices)).long() & _MASK
    counter = torch.cat((groups[None], of_rows[:, :, None].expand(-1, -1, groups.shape[1])))
    words = philox4x32(counter, torch.stack((seeds, seeds >> 32))[:, :, None] & _MASK)
    return words.permute(1, 2, 0).flatten(1)[:, : candidates.shape[1]]


def exponential(words: Tensor) -> Tensor:
    """Standard exponentials with full relative resolution in the small tail, float64.

    The smallest exponentials decide a race, so this is -log1p(-u) and not -log(u), which is coarse
    exactly there.

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
