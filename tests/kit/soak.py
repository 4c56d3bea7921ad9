"""A great many short requests with random cancellation, failures and draft lengths.

`python -m kit.soak` serves 100,000 and records how each ended.
"""

import gc
import json
import platform
import resource
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random

import click
import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.app.decode import DecodeStep
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.engine.schedule import Limits
from acceptor.app.request import FinishReason, GenerationResult
from acceptor.core import SamplingParams, Scores, Strict
from kit.toy_pair import Pair, TableModel

VOCAB_SIZE, SICK_TOKEN, NUM_SLOTS, MAX_LEN = 11, 10, 8, 24


@frozen(eq=False)
class ChainModel(TableModel):
    """Logits that depend on the last token alone, and need no cache."""

    def new_cache(self, num_slots: int, max_len: int) -> Tensor:  # noqa: ARG002
        return torch.empty(0)

    def clear(self, cache: Tensor, slot_ids: Sequence[int]) -> None:
        pass

    def forward(
        self, token_ids: Tensor, *_: Tensor, last_only: bool = False, **__: object
    ) -> Scores:
        return Scores(self.table[token_ids[:, -1:] if last_only else token_ids])


def sick_table() -> Tensor:
    """Nobody comes to the sick token by itself; behind it are no logits."""
    table = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    table[:, SICK_TOKEN] = -torch.inf
    table[SICK_TOKEN] = torch.nan
    return table


@frozen(kw_only=True)
class Fate:
    """What a request asks for and what must become of it.

    Attributes:
        prompt: one that holds a token out of the vocabulary, or is too long, is refused.
        max_tokens: wanted.
        num_spec_tokens: its K.
        cancel_after: so many steps after it came; None never.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    num_spec_tokens: int
    cancel_after: int | None

    @classmethod
    def draw(cls, random: Random) -> "Fate":
        """Anything; about one in eight is unfit, sick or unwanted, each."""
        prompt = tuple(random.randrange(SICK_TOKEN) for _ in range(random.randint(1, 6)))
        kind = random.randrange(8)
        if kind == 0:
            prompt = random.choice([(*prompt, VOCAB_SIZE), (*prompt, -1), (1,) * MAX_LEN, ()])
        elif kind == 1:
            prompt = (*prompt, SICK_TOKEN)
        return cls(
            prompt=prompt,
            max_tokens=random.randint(1, 6),
            num_spec_tokens=random.randint(0, 4),
            cancel_after=random.randint(0, 4) if kind == 2 else None,
        )

    def is_met(self, result: GenerationResult, table: Tensor) -> bool:
        """Whether this end is the right one, token for token."""
        if not self.prompt or len(self.prompt) >= MAX_LEN or not self._is_known:
            return result.finish_reason is FinishReason.ERROR and bool(result.error)
        if result.finish_reason is FinishReason.CANCELLED:
            return self.cancel_after is not None and self._walks(result, table)
        if self.prompt[-1] == SICK_TOKEN:
            return result.finish_reason is FinishReason.ERROR and bool(result.status)
        whole = len(result.token_ids) == self.max_tokens
        return result.finish_reason is FinishReason.LENGTH and whole and self._walks(result, table)

    @property
    def _is_known(self) -> bool:
        return all(0 <= token_id < VOCAB_SIZE for token_id in self.prompt)

    def _walks(self, result: GenerationResult, table: Tensor) -> bool:
        path = (self.prompt[-1], *result.token_ids)
        return all(int(table[here].argmax()) == there for here, there in pairwise(path))


@frozen(eq=False)
class Soak:
    """An engine under load.

    Attributes:
        seed: of the requests.
        new_runner: see `Parts.new_runner`.
        ends: how requests ended, counted.
        wrong: requests that ended twice, or otherwise than they should.
        memory: bytes that Python has in use, now and then.
        resident: kilobytes that the process holds, tensors, too, at the same moments.
    """

    seed: int
    new_runner: Callable[[DecodeStep], Runner] = EagerRunner
    table: Tensor = field(factory=sick_table)
    ends: Counter[str] = field(factory=Counter)
    wrong: list[Fate] = field(factory=list)
    memory: list[int] = field(factory=list)
    resident: list[int] = field(factory=list)
    _random: Random = field(init=False)
    _engine: Engine = field(init=False)
    _open: dict[int, Fate] = field(factory=dict, init=False)
    _to_cancel: dict[int, list[int]] = field(factory=dict, init=False)

    @_random.default
    def _make_random(self) -> Random:
        return Random(self.seed)  # noqa: S311, nothing is secret here

    @_engine.default
    def _make_engine(self) -> Engine:
        draft = self.table.nan_to_num() + 0.7 * torch.randn_like(self.table)
        pair = Pair(ChainModel(self.table, MAX_LEN), ChainModel(draft, MAX_LEN))
        decoder = evolve(pair.decoder(Strict(), 4), new_runner=self.new_runner)
        return Engine.of(decoder, Limits(num_slots=NUM_SLOTS))

    def serve(self, num_requests: int, num_looks: int = 10) -> None:
        """Serve so many, looking at the memory in between."""
        tracemalloc.start()
        num_added = num_steps = 0
        while num_added < num_requests or self._engine.has_unfinished():
            while num_added < num_requests and len(self._open) < 2 * NUM_SLOTS:
                self._add(num_steps)
                num_added += 1
                if num_added % (num_requests // num_looks) == 0:
                    self._look()
            self._step(num_steps)
            num_steps += 1
        tracemalloc.stop()

    def _look(self) -> None:
        gc.collect()
        self.memory.append(tracemalloc.get_traced_memory()[0])
        self.resident.append(resident_kilobytes())

    @property
    def lost(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def _add(self, now: int) -> None:
        fate = Fate.draw(self._random)
        request_id = self._engine.add_request(
            fate.prompt,
            SamplingParams(temperature=0, seed=0),
            max_tokens=fate.max_tokens,
            num_spec_tokens=fate.num_spec_tokens,
        )
        self._open[request_id] = fate
        if fate.cancel_after is not None:
            self._to_cancel.setdefault(now + fate.cancel_after, []).append(request_id)

    def _step(self, now: int) -> None:
        for request_id in self._to_cancel.pop(now, ()):
            self._engine.cancel(request_id)
        for progress in self._engine.step():
            if progress.result is None:
                continue
            fate = self._open.pop(progress.request_index)
            self.ends[str(progress.result.finish_reason)] += 1
            if not fate.is_met(progress.result, self.table):
                self.wrong.append(fate)


def resident_kilobytes() -> int:
    """What this process holds; where the system is not Linux, what it has held at most."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(statm.read_text().split()[1]) * resource.getpagesize() // 1024


@click.command()
@click.option("--num-requests", default=100_000, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("docs/data/soak.json"), show_default=True
)
def main(num_requests: int, out: Path) -> None:
    """Serve requests and record what became of them; takes some minutes."""
    torch.set_num_threads(1)
    soak = Soak(seed=0)
    soak.serve(num_requests)
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, torch {torch.__version__}",
        "num_requests": num_requests,
        "ends": dict(soak.ends),
        "lost": soak.lost,
        "wrong": len(soak.wrong),
        "memory_bytes": soak.memory,
        "resident_kilobytes": soak.resident,
    }
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
