"""Bugs planted where random numbers are keyed, shared or shaped, and in how a draw is decided."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acceptor.backends.reference import accept, draw, sampler, thresholds
from acceptor.core import Block, Stream, race
from acceptor.core.randomness import Level, exponential, random_words
from kit.bugs import Bug

EXACT_LAW = "exact law: {}, draft model"


class _OtherStream:
    """`Stream` as the draws know it, but recovered tokens use the noise of another."""

    def __init__(self, recover: Stream) -> None:
        self.RECOVER, self.TARGET, self.ACCEPT = recover, Stream.TARGET, Stream.ACCEPT


def _with_stream(wrong: Stream, instead_of: Stream) -> Callable[..., Tensor]:
    def words(
        seeds: Tensor, positions: Tensor, indices: Tensor, stream: Stream, *rest: Any
    ) -> Tensor:
        chosen = wrong if stream is instead_of else stream
        return random_words(seeds, positions, indices, chosen, *rest)

    return words


def _keys_without_index(
    draws: Any, first_row: int, num_rows: int, right: Any = draw.Draws._keys
) -> tuple[Tensor, ...]:
    seeds, positions, indices = right(draws, first_row, num_rows)
    return seeds, positions, torch.ones_like(indices)


def _drawn_without_index(
    law: Tensor, seeds: Tensor, positions: Tensor, _: Tensor, *rest: Any, right: Any = draw.draw
) -> Tensor:
    drawn: Tensor = right(law, seeds, positions, torch.ones_like(positions), *rest)
    return drawn


def _keys_by_slot(
    draws: Any, first_row: int, num_rows: int, right: Any = draw.Draws._keys
) -> tuple[Tensor, ...]:
    seeds, *others = right(draws, first_row, num_rows)
    return torch.full_like(seeds, draws.rows.request), *others


def _one_uniform(
    seeds: Tensor, positions: Tensor, indices: Tensor, right: Any = draw.acceptance_uniforms
) -> Tensor:
    count = len(seeds)
    same: Tensor = right(seeds, positions[:1].expand(count), indices[:1].expand(count))
    return same


def _next_words(*key: Any) -> Tensor:
    return random_words(*key).roll(1, dims=-1)


def _one_flat_race(log_weights: Tensor, words: race.WordSource) -> Tensor:
    ids = torch.arange(log_weights.shape[1]).expand_as(log_weights)
    return (log_weights - exponential(words(Level.TOKEN, ids)).log()).argmax(dim=-1)


def _minus_log(words: Tensor) -> Tensor:
    return -((words.double() + 0.5) * 2.0**-32).float().log().double()


def _short_tail(words: Tensor) -> Tensor:
    return -torch.log1p(-((words >> 9).double() + 0.5) * 2.0**-23)


def _rounding_exponential(words: Tensor) -> Tensor:
    return -torch.log1p(-((words.float() + 0.5) * 2.0**-32).double())


def _uniform_from_0(words: Tensor) -> Tensor:
    return (words >> 9).double() * 2.0**-23


def _uniform_to_1(words: Tensor) -> Tensor:
    return ((words >> 9) + 1).double() * 2.0**-23


def _at_most(log_thresholds: Tensor, draws: Any) -> Tensor:
    accepted: Tensor = draws.uniforms(len(log_thresholds)).log() <= log_thresholds
    return accepted


def _last_argmax(logits: Tensor) -> Tensor:
    last = logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter_(1, last, 0.0)


BUGS = (
    Bug(
        "recovered token drawn with the draft's noise",
        ((draw, "Stream", _OtherStream(Stream.DRAFT)),),
        check=EXACT_LAW.format("probabilistic"),
    ),
    Bug(
        "recovered token drawn with the acceptance's noise",
        ((draw, "Stream", _OtherStream(Stream.ACCEPT)),),
        check=EXACT_LAW.format("probabilistic"),
    ),
    Bug(
        "bonus tokens use the recovery stream",
        ((draw, "random_words", _with_stream(Stream.RECOVER, Stream.TARGET)),),
    ),
    Bug(
        "block drafts with the target's noise",
        ((Block, "draft_stream", Stream.TARGET),),
        shown_by="proof",
        check=EXACT_LAW.format("block"),
    ),
    Bug(
        "one acceptance uniform for the whole draft",
        ((draw, "acceptance_uniforms", _one_uniform),),
        check=EXACT_LAW.format("probabilistic"),
    ),
    Bug(
        "noise keyed without the draft index",
        (
            (draw.Draws, "_keys", _keys_without_index),
            (sampler, "draw", _drawn_without_index),
        ),
        check=EXACT_LAW.format("block"),
    ),
    Bug("noise keyed by slot", ((draw.Draws, "_keys", _keys_by_slot),)),
    Bug("noise belongs to the neighbour", ((draw, "random_words", _next_words),)),
    Bug("one flat race", ((draw, "race", _one_flat_race),), least_vocab_size=513),
    Bug(
        "−log u in float32 instead of −log1p(−u)",
        ((race, "exponential", _minus_log),),
    ),
    Bug(
        "exponentials from 23 bits",
        ((race, "exponential", _short_tail),),
        shown_by="rare candidate",
    ),
    Bug(
        "exponentials whose u rounds to 1",
        ((race, "exponential", _rounding_exponential),),
        shown_by="only candidate",
    ),
    Bug(
        "u ≤ threshold with u from 0",
        ((draw, "acceptance_uniform", _uniform_from_0), (accept, "_verdicts", _at_most)),
        shown_by="lowest uniform",
    ),
    Bug(
        "u rounds to 1",
        ((draw, "acceptance_uniform", _uniform_to_1),),
        shown_by="highest uniform",
    ),
    Bug(
        "last index wins a tie",
        ((thresholds, "_one_hot_at_argmax", _last_argmax),),
        features=("greedy", "masked"),
    ),
)


def flat_race() -> Bug:
    """One of them, for commands that name a backend."""
    return next(bug for bug in BUGS if bug.name == "one flat race")
