"""Bugs planted where random numbers are keyed, shared or shaped, and in how a draw is decided."""

from typing import Any

import torch
from torch import Tensor

from acceptor.backends.reference import draw, sampler, thresholds, verify
from acceptor.core import Block, Stream, race
from acceptor.core.randomness import Level, exponential, random_words
from kit.bugs import Bug, Right, bugs_of

PROBABILISTIC, BLOCK = "probabilistic, draft model", "block, draft model"


class _OtherStream:
    """`Stream` as the draws know it, but recovered tokens use the noise of another."""

    def __init__(self, recover: Stream) -> None:
        self.RECOVER, self.TARGET, self.ACCEPT = recover, Stream.TARGET, Stream.ACCEPT


OTHER_NOISE = Bug.instead_of(
    draw, "Stream", "recovered token drawn with the draft's noise", check=PROBABILISTIC
)(_OtherStream(Stream.DRAFT))
NOISE_OF_ACCEPTANCE = Bug.instead_of(
    draw, "Stream", "recovered token drawn with the acceptance's noise", check=PROBABILISTIC
)(_OtherStream(Stream.ACCEPT))
TARGETS_NOISE = Bug.instead_of(
    Block, "draft_stream", "block drafts with the target's noise", shown_by="proof", check=BLOCK
)(Stream.TARGET)


@Bug.instead_of(draw, "random_words", "bonus tokens use the recovery stream")
def _recovery_for_bonus(
    seeds: Tensor, positions: Tensor, indices: Tensor, stream: Stream, *rest: Any
) -> Tensor:
    chosen = Stream.RECOVER if stream is Stream.TARGET else stream
    return random_words(seeds, positions, indices, chosen, *rest)


def _keys_without_index(
    draws: Any, first_row: int, num_rows: int, right: Any = draw.Draws._keys
) -> tuple[Tensor, ...]:
    seeds, positions, indices = right(draws, first_row, num_rows)
    return seeds, positions, torch.ones_like(indices)


def _drawn_without_index(
    law: Tensor, seeds: Tensor, positions: Tensor, _: Tensor, *rest: Any, right: Right = draw.draw
) -> Tensor:
    return right(law, seeds, positions, torch.ones_like(positions), *rest)


WITHOUT_INDEX = Bug(
    "noise keyed without the draft index",
    ((draw.Draws, "_keys", _keys_without_index), (sampler, "draw", _drawn_without_index)),
    check=BLOCK,
)


@Bug.instead_of(draw.Draws, "_keys", "noise keyed by slot")
def _keys_by_slot(
    draws: Any, first_row: int, num_rows: int, right: Any = draw.Draws._keys
) -> tuple[Tensor, ...]:
    seeds, *others = right(draws, first_row, num_rows)
    return torch.full_like(seeds, draws.rows.request), *others


@Bug.instead_of(
    draw, "acceptance_uniforms", "one acceptance uniform for the whole draft", check=PROBABILISTIC
)
def _one_uniform(
    seeds: Tensor, positions: Tensor, indices: Tensor, right: Right = draw.acceptance_uniforms
) -> Tensor:
    return right(seeds, positions[:1].expand(len(seeds)), indices[:1].expand(len(seeds)))


@Bug.instead_of(draw, "random_words", "noise belongs to the neighbour")
def _next_words(*key: Any) -> Tensor:
    return random_words(*key).roll(1, dims=-1)


@Bug.instead_of(draw, "race", "one flat race", least_vocab_size=513)
def _one_flat_race(log_weights: Tensor, words: race.WordSource) -> Tensor:
    ids = torch.arange(log_weights.shape[1]).expand_as(log_weights)
    return (log_weights - exponential(words(Level.TOKEN, ids)).log()).argmax(dim=-1)


@Bug.instead_of(race, "exponential", "−log u in float32 instead of −log1p(−u)")
def _minus_log(words: Tensor) -> Tensor:
    return -((words.double() + 0.5) * 2.0**-32).float().log().double()


@Bug.instead_of(race, "exponential", "exponentials from 23 bits", shown_by="rare candidate")
def _short_tail(words: Tensor) -> Tensor:
    return -torch.log1p(-((words >> 9).double() + 0.5) * 2.0**-23)


@Bug.instead_of(race, "exponential", "exponentials whose u rounds to 1", shown_by="only candidate")
def _rounding_exponential(words: Tensor) -> Tensor:
    return -torch.log1p(-((words.float() + 0.5) * 2.0**-32).double())


def _uniform_from_0(words: Tensor) -> Tensor:
    return (words >> 9).double() * 2.0**-23


@Bug.instead_of(draw, "acceptance_uniform", "u rounds to 1", shown_by="highest uniform")
def _uniform_to_1(words: Tensor) -> Tensor:
    return ((words >> 9) + 1).double() * 2.0**-23


def _at_most(log_thresholds: Tensor, draws: draw.Draws) -> Tensor:
    return draws.uniforms(len(log_thresholds)).log() <= log_thresholds


AT_MOST = Bug(
    "u ≤ threshold with u from 0",
    ((draw, "acceptance_uniform", _uniform_from_0), (verify, "_verdicts", _at_most)),
    shown_by="lowest uniform",
)


@Bug.instead_of(
    thresholds, "_one_hot_at_argmax", "last index wins a tie", features=("greedy", "masked")
)
def _last_argmax(logits: Tensor) -> Tensor:
    last = logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter_(1, last, 0.0)


BUGS = bugs_of(vars())


def flat_race() -> Bug:
    """One of them, for commands that name a backend."""
    return _one_flat_race
