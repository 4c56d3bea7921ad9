"""Masks that depend on the token before, and masks that raise, for requests of tests."""

from collections.abc import Sequence
from typing import Self

import torch
from attrs import define, field, frozen
from torch import Tensor

from acceptor.core import pack_allowed
from kit.toy_pair import VOCAB_SIZE


@define(eq=False)
class ByLast:
    """After t come those v for which t + 2 v is no multiple of 3; after a dead end, none."""

    emitted: list[int] = field(factory=list)
    dead_end: int = -1
    vocab_size: int = VOCAB_SIZE

    def fill(self, masks: Tensor, draft_token_ids: Sequence[int]) -> None:
        known = [*self.emitted, *draft_token_ids]
        for row, mask in enumerate(masks):
            last = ([0, *known])[len(self.emitted) + row]
            mask.copy_(pack_allowed(self.allowed(last)[None])[0])

    def allowed(self, last: int) -> Tensor:
        tokens = torch.arange(self.vocab_size)
        return ((last + 2 * tokens) % 3 > 0) & (last != self.dead_end)

    def accept(self, token_id: int) -> None:
        last = self.emitted[-1] if self.emitted else 0
        assert self.allowed(last)[token_id]
        self.emitted.append(token_id)


@frozen(eq=False)
class Failing:
    """Masks whose maker, or one of whose methods, raises."""

    place: str
    error: BaseException

    def __call__(self) -> Self:
        return self._reach("new_masks")

    def fill(self, masks: Tensor, _: Sequence[int]) -> None:
        masks.fill_(-1)
        self._reach("fill")

    def accept(self, _: int) -> None:
        self._reach("accept")

    def _reach(self, place: str) -> Self:
        if place == self.place:
            # Else each time would add a frame to it.
            raise self.error.with_traceback(None)
        return self
