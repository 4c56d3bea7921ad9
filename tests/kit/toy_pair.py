"""Models of ten lines, decoders that use them, and engines of these."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NoDrafter
from acceptor.app.engine.capture import Record
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import Progress
from acceptor.app.request_state import Detokenizer
from acceptor.backends import load_sampler
from acceptor.core import LanguageModel, Policy, Probabilistic, Sampler, Scores

VOCAB_SIZE = 13
NUM_CONTEXTS = 97
NEVER_WRITTEN = 10**6
MAX_LEN = 40


@frozen(eq=False)
class TableModel:
    """Logits from a table, chosen by all tokens in the cache up to a position.

    One wrong, missing or outdated token in the cache changes every row after it.
    """

    table: Tensor
    max_model_len: int = 512
    device: torch.device = torch.device("cpu")
    forward_name: str = "table"

    @property
    def vocab_size(self) -> int:
        return self.table.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    def new_cache(self, num_slots: int, max_len: int) -> Tensor:
        return torch.full((num_slots, max_len), NEVER_WRITTEN)

    def clear(self, cache: Tensor, slot_ids: Sequence[int]) -> None:
        cache[list(slot_ids)] = NEVER_WRITTEN

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: Tensor,
        slot_ids: Tensor,
        *,
        last_only: bool = False,
        max_position: int | None = None,
        taps: Sequence[int] = (),
    ) -> Scores:
        assert not taps
        assert max_position in (None, positions.max())
        assert positions.min() >= 0
        assert positions.max() < cache.shape[1]
        assert token_ids.min() >= 0
        logits = self.read(token_ids, positions, cache, slot_ids)
        return Scores(logits[:, -1:] if last_only else logits)

    def read(self, token_ids: Tensor, positions: Tensor, cache: Tensor, slot_ids: Tensor) -> Tensor:
        cache[slot_ids[:, None], positions] = token_ids
        weights = torch.arange(1, cache.shape[1] + 1) ** 2
        contexts = ((cache[slot_ids] + 1) * weights).cumsum(1).gather(1, positions)
        return self.table[contexts % len(self.table)]


@frozen(eq=False)
class LeakyModel(TableModel):
    """Reads its whole slot, like attention that multiplies masked positions by zero."""

    def new_cache(self, num_slots: int, max_len: int) -> Tensor:
        return torch.zeros(num_slots, max_len)

    def clear(self, cache: Tensor, slot_ids: Sequence[int]) -> None:
        cache[list(slot_ids)] = 0

    def read(self, token_ids: Tensor, positions: Tensor, cache: Tensor, slot_ids: Tensor) -> Tensor:
        cache[slot_ids[:, None], positions] = torch.where(token_ids == 7, torch.nan, 1.0)
        return self.table[token_ids] + 0 * cache[slot_ids].sum(1)[:, None, None]


def next_logits(target: LanguageModel[Any], known: Sequence[int]) -> Tensor:
    """[vocab_size] float64, after all of these tokens."""
    cache, positions = target.new_cache(1, len(known)), torch.arange(len(known))[None]
    scores = target.forward(torch.tensor([list(known)]), positions, cache, torch.tensor([0]))
    return scores.logits[0, -1].double()


@frozen(eq=False)
class Letters:
    """Token i is the letter number i; token 0 is special and has no text."""

    pushed: list[int] = field(factory=list)

    def push(self, token_ids: Iterable[int]) -> str:
        token_ids = list(token_ids)
        self.pushed.extend(token_ids)
        return "".join(chr(ord("a") + token_id - 1) for token_id in token_ids if token_id)

    def finish(self) -> str:
        return ""


def random_table(seed: int, vocab_size: int = VOCAB_SIZE, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(NUM_CONTEXTS, vocab_size, generator=generator)


@frozen(eq=False)
class Pair:
    """A target and a draft that agrees with it now and then."""

    target: TableModel
    draft: TableModel

    @classmethod
    def make(cls, seed: int = 0, vocab_size: int = VOCAB_SIZE, max_model_len: int = 512) -> "Pair":
        target, other = random_table(seed, vocab_size), random_table(seed + 1, vocab_size)
        return cls(
            TableModel(target, max_model_len), TableModel(0.8 * target + 0.6 * other, max_model_len)
        )

    def decoder(
        self,
        policy: Policy,
        num_spec_tokens: int,
        *,
        eos_token_ids: Iterable[int] = (),
        new_detokenizer: Callable[[], Detokenizer] = Letters,
    ) -> Decoder:
        plain = decoder_for(self.target, load_sampler("reference"), policy)
        made = with_draft(plain, self.draft, num_spec_tokens) if num_spec_tokens else plain
        return evolve(made, eos_token_ids=frozenset(eos_token_ids), new_detokenizer=new_detokenizer)


def decoder_for(target: Any, sampler: Sampler, policy: Policy) -> Decoder:
    """A decoder without drafts, token by letter."""
    return Decoder(
        target=target,
        drafter=NoDrafter(),
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )


def with_draft(
    decoder: Decoder, model: Any, num_spec_tokens: int = 3, vocabulary: Any = None
) -> Decoder:
    """The same decoder with a draft model."""
    drafter = ModelDrafter(
        model=model,
        sampler=decoder.sampler,
        policy=decoder.policy,
        num_spec_tokens=num_spec_tokens,
        vocabulary=vocabulary,
    )
    return evolve(decoder, drafter=drafter)


def engine_of(pair: Pair, **limits: int) -> Engine:
    return engine_with(pair.decoder(Probabilistic(), 4), None, **limits)


def engine_with(decoder: Decoder, record: Record | None = None, **limits: int) -> Engine:
    """An engine that replays recorded steps, if there is a recorder."""
    if record is not None:
        decoder = evolve(decoder, new_runner=partial(GraphRunner, record=record))
    return Engine.of(decoder, Limits(**{"num_slots": 3, "max_len": MAX_LEN} | limits))


def run(engine: Engine) -> list[Progress]:
    told = []
    while engine.has_unfinished():
        told += engine.step()
    return told


def record(action: Callable[[], None]) -> Callable[[], None]:
    """Replaces capturing: runs the step once, then again and again at the same addresses."""
    action()
    return action
