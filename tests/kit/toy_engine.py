"""Engines on a toy pair, and what they tell."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.app.decoder import Decoder
from acceptor.app.engine.capture import Record
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.schedule import Limits
from acceptor.app.request import Progress
from acceptor.core import Probabilistic, Scores
from kit.toy_pair import Pair, TableModel

MAX_LEN = 40


def engine_of(pair: Pair, **limits: int) -> Engine:
    return engine_with(pair.decoder(Probabilistic(), 4), None, **limits)


def engine_with(decoder: Decoder, record: Record | None = None, **limits: int) -> Engine:
    """An engine that replays what was recorded, if there is something to record with."""
    if record is not None:
        decoder = evolve(decoder, new_runner=partial(GraphRunner, record=record))
    return Engine.of(decoder, Limits(**{"num_slots": 3, "max_len": MAX_LEN} | limits))


def run(engine: Engine) -> list[Progress]:
    told = []
    while engine.has_unfinished():
        told += engine.step()
    return told


def record(action: Callable[[], None]) -> Callable[[], None]:
    """Stands for capturing: runs the step once, then again and again at the same addresses."""
    action()
    return action


@frozen(eq=False)
class LeakyModel(TableModel):
    """Reads its whole slot, as attention does that multiplies what it masks by zero."""

    def new_cache(self, num_slots: int, max_len: int) -> Tensor:
        return torch.zeros(num_slots, max_len)

    def clear(self, cache: Tensor, slot_ids: Sequence[int]) -> None:
        cache[list(slot_ids)] = 0

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: Tensor,
        slot_ids: Tensor,
        *,
        last_only: bool = False,
        **_: Any,
    ) -> Scores:
        cache[slot_ids[:, None], positions] = torch.where(token_ids == 7, torch.nan, 1.0)
        logits = self.table[token_ids] + 0 * cache[slot_ids].sum(1)[:, None, None]
        return Scores(logits[:, -1:] if last_only else logits)
