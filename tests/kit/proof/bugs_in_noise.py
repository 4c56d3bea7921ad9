"""Bugs planted on purpose where random numbers are keyed, shared or shaped.

Each function puts one into the reference backend until the patch is undone. How a bug shows is in
`kit.proof.mutants`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from acceptor.backends.reference import accept, draw, sampler
from acceptor.core import Block, Stream
from acceptor.core import race as core_race

Patch = pytest.MonkeyPatch


class _OtherStream:
    """`Stream` as the verification knows it, but recovered tokens use the noise of another."""

    def __init__(self, recover: Stream) -> None:
        self.RECOVER, self.TARGET, self.ACCEPT = recover, Stream.TARGET, Stream.ACCEPT


def recover_with(stream: Stream) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(draw, "Stream", _OtherStream(stream))


def draft_with_target_noise(patch: Patch) -> None:
    patch.setattr(Block, "draft_stream", Stream.TARGET)


def coarse_tail(patch: Patch) -> None:
    def exponential(words: Tensor) -> Tensor:
        return -((words.double() + 0.5) * 2.0**-32).float().log().double()

    patch.setattr(core_race, "exponential", exponential)


def short_tail(patch: Patch) -> None:
    def exponential(words: Tensor) -> Tensor:
        return -torch.log1p(-((words >> 9).double() + 0.5) * 2.0**-23)

    patch.setattr(core_race, "exponential", exponential)


def accepts_at_zero(patch: Patch) -> None:
    def verdicts(log_thresholds: Tensor, draws: Any) -> Tensor:
        return draws.uniforms(len(log_thresholds)).log() <= log_thresholds  # type: ignore[no-any-return]

    patch.setattr(draw, "acceptance_uniform", lambda words: (words >> 9).double() * 2.0**-23)
    patch.setattr(accept, "_verdicts", verdicts)


def uniform_reaches_one(patch: Patch) -> None:
    patch.setattr(draw, "acceptance_uniform", lambda words: ((words >> 9) + 1).double() * 2.0**-23)


def one_uniform_per_draft(patch: Patch) -> None:
    real = draw.acceptance_uniforms

    def uniforms(seeds: Tensor, positions: Tensor, indices: Tensor) -> Tensor:
        return real(seeds, positions[:1].expand(len(seeds)), indices[:1].expand(len(seeds)))

    patch.setattr(draw, "acceptance_uniforms", uniforms)


def without_draft_index(patch: Patch) -> None:
    keys, real = draw.Draws._keys, draw.draw

    def without_index(draws: Any, first_row: int, num_rows: int) -> tuple[Tensor, ...]:
        seeds, positions, indices = keys(draws, first_row, num_rows)
        return seeds, positions, torch.ones_like(indices)

    def drafted(
        law: Tensor, seeds: Tensor, positions: Tensor, indices: Tensor, stream: Stream
    ) -> Tensor:
        return real(law, seeds, positions, torch.ones_like(indices), stream)

    patch.setattr(draw.Draws, "_keys", without_index)
    patch.setattr(sampler, "draw", drafted)


def keyed_by_slot(patch: Patch) -> None:
    keys = draw.Draws._keys

    def by_slot(draws: Any, first_row: int, num_rows: int) -> tuple[Tensor, ...]:
        seeds, *others = keys(draws, first_row, num_rows)
        return torch.full_like(seeds, draws.rows.request), *others

    patch.setattr(draw.Draws, "_keys", by_slot)
