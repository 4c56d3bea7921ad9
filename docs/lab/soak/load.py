"""Sends a great many short requests to one engine, from consumers of every behaviour."""

import asyncio
import ctypes
import gc
import resource
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from attrs import field, frozen

from acceptor.app.config import Config
from acceptor.app.decoder import Decoder
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.request import FinishReason, GenerationResult, Progress
from acceptor.app.token_masks import GuardedMasks, NewTokenMasks
from acceptor.app.wiring import Wired, wire
from acceptor.core.allowed_tokens import num_mask_words, unpack_allowed
from lab.soak.requests import BROKEN, MAX_LEN, Requests

LOST_AFTER = 600.0


class ConsumerError(Exception):
    """Raised by a consumer that is meant to fail."""


@frozen(eq=False)
class Soak:
    """An engine under load.

    Attributes:
        decoder: the parts of the engine.
        num_slots: requests that run at once; twice as many consumers come and go.
        num_different: how many different requests there are.
        grammars: the grammars of some requests.
        seed: the seed of requests and consumers.
        ends: how requests ended, or why no consumer waited for their end.
        masked: the same for requests with masks.
        wrong: requests that got another result than alone.
        texts: how many are complete, and how many hold bytes that are not UTF-8.
        resident: samples of the process's memory in kilobytes, tensors included.
    """

    decoder: Decoder
    num_slots: int
    num_different: int
    grammars: Sequence[NewTokenMasks] = ()
    seed: int = 0
    ends: Counter[str] = field(factory=Counter)
    masked: Counter[str] = field(factory=Counter)
    wrong: list[Any] = field(factory=list)
    resident: list[int] = field(factory=list)
    texts: Counter[str] = field(factory=Counter)
    _random: Random = field(init=False)
    _requests: list[tuple[Any, GenerationResult]] = field(init=False)
    _engine: Engine = field(init=False)

    @_random.default
    def _make_random(self) -> Random:
        return Random(self.seed)  # noqa: S311, nothing is secret here

    @_requests.default
    def _draw_requests(self) -> list[tuple[Any, GenerationResult]]:
        return Requests(self.decoder, self.grammars, self._random).draw(self.num_different)

    @_engine.default
    def _make_engine(self) -> Engine:
        return Engine.of(self.decoder, Limits(num_slots=self.num_slots, max_len=MAX_LEN))

    def serve(self, num_requests: int, num_looks: int = 10) -> None:
        """Serve this many requests, and sample the memory in between."""
        asyncio.run(self._serve(num_requests, num_requests // num_looks))

    @property
    def num_unfinished(self) -> int:
        """How many requests the engine still holds."""
        return len(self._engine.loop.states)

    async def _serve(self, num_requests: int, look_after: int) -> None:
        numbers = iter(range(1, num_requests + 1))

        async def consume() -> None:
            for number in numbers:
                await self._consume()
                if number % look_after == 0:
                    self.resident.append(resident_kilobytes())

        await asyncio.gather(*(consume() for _ in range(2 * self.num_slots)))
        while self._engine.has_unfinished():
            await asyncio.sleep(0.001)

    async def _consume(self) -> None:
        request, alone = self._random.choice(self._requests)
        consumers = (self._read, self._read, self._read, self._cancel, self._leave, self._raise)
        consume = self._random.choice((*consumers, self._pause, self._listen_badly))
        try:
            async with asyncio.timeout(LOST_AFTER):
                told = await consume(request)
        except TimeoutError:
            self.ends["lost"] += 1
            return
        result = told[-1].result
        end = "not awaited" if result is None else str(result.finish_reason)
        self.ends[end] += 1
        self.masked[end] += getattr(request, "new_masks", None) is not None
        if result is not None:
            self.texts["broken" if BROKEN in result.text else "whole"] += 1
        if not (is_right(told, alone) and self._obeys(request, told)):
            self.wrong.append((request, consume.__name__, told, alone))

    def _obeys(self, request: Any, told: Sequence[Progress]) -> bool:
        """Whether the request's masks, if they did not fail, allowed all tokens that it emitted."""
        if getattr(request, "new_masks", None) is None:
            return True
        vocab_size = self.decoder.target.vocab_size
        masks = GuardedMasks(request.new_masks)
        words = torch.zeros(1, num_mask_words(vocab_size), dtype=torch.int32)
        for token_id in (token_id for progress in told for token_id in progress.token_ids):
            masks.fill(words, [])
            if not unpack_allowed(words, None, 0, 1, vocab_size)[0, token_id]:
                return False
            masks.accept(token_id)
            if masks.error:
                # The step continues with the masks that it has.
                break
        return True

    async def _read(self, request: Any) -> list[Progress]:
        return [progress async for progress in self._engine.stream(request)]

    async def _pause(self, request: Any) -> list[Progress]:
        """Stop reading until the request is long over, then read everything."""
        told = list[Progress]()
        async for progress in self._engine.stream(request):
            if not told:
                await asyncio.sleep(self._random.random())
            told.append(progress)
        return told

    async def _cancel(self, request: Any) -> list[Progress]:
        told = list[Progress]()
        async for progress in self._engine.stream(request):
            told.append(progress)
            self._engine.cancel(progress.request_index)
        return told

    async def _leave(self, request: Any) -> list[Progress]:
        async for progress in self._engine.stream(request):
            return [progress]
        raise AssertionError("a stream without progress")

    async def _raise(self, request: Any) -> list[Progress]:
        told = list[Progress]()
        with suppress(ConsumerError):
            async for progress in self._engine.stream(request):
                fail(told, progress)
        return told

    async def _listen_badly(self, request: Any) -> list[Progress]:
        told = list[Progress]()
        self._engine.add_request(request, on_progress=partial(fail, told))
        # A stream drives the engine.
        await self._read([])
        while not told or told[-1].result is None:
            await asyncio.sleep(0.001)
        return told


def fail(told: list[Progress], progress: Progress) -> None:
    """A listener that raises."""
    told.append(progress)
    raise ConsumerError


def is_right(told: Sequence[Progress], alone: GenerationResult) -> bool:
    """Whether a request got its result as if alone, up to where it was cancelled or left."""
    token_ids = tuple(token_id for progress in told for token_id in progress.token_ids)
    text = "".join(fragment.text for progress in told for fragment in progress.fragments)
    result = told[-1].result
    if result is not None and result.finish_reason is not FinishReason.CANCELLED:
        return (token_ids, text) == (result.token_ids, result.text) and result == alone
    return alone.token_ids[: len(token_ids)] == token_ids and alone.text.startswith(text)


def resident_kilobytes() -> int:
    """This process's resident memory; on systems other than Linux, its peak.

    The allocator returns freed memory to the system first.
    """
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(statm.read_text().split()[1]) * resource.getpagesize() // 1024


def bundled_pair() -> Wired:
    """The pair that comes with the package."""
    return wire(Config())


def few_grammars(wired: Wired) -> Sequence[NewTokenMasks]:
    """Some grammars that short outputs can complete."""
    grammars = wired.grammars()
    patterns = ("yes|no|[0-9]{1,3}", "([a-z]+ )+", "(é|ü|[^ -~])*")
    return [*map(grammars.regex, patterns), grammars.json_schema('{"enum": [true, "or", null]}')]
