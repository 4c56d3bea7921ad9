"""The engine: requests enter and leave a running batch, and each gets the tokens as if alone.

A request's tokens depend on its prompt, its parameters and its seed; neighbours, slots and the
order of arrival change when tokens come, not what they are. A request that is invalid or fails ends
with its error, and the others go on.

Streams are async iterators over requests' progress. One task drives the steps in a worker thread
while there is work.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from threading import Lock
from typing import SupportsIndex, TypedDict, Unpack

import torch
from attrs import define, field

from ...adapters.error_text import one_line
from ...core import AcceptorError, InvalidInputError, SamplingParams
from ...core.checks import check_integer, plain_number
from ..decode import DecodeStep
from ..request import (
    GenerationRequest,
    GenerationResult,
    OnProgress,
    Progress,
    check_request,
    check_text,
    ignore,
    refused,
)
from ..request_state import RequestState
from ..token_masks import NewTokenMasks
from .loop import Loop
from .out_of_memory import typed_out_of_memory
from .parts import Limits, MemoryPlan, Parts

Queue = asyncio.Queue[Progress | Exception]

Prompt = str | Iterable[SupportsIndex] | GenerationRequest
"""A text, if the engine has a tokenizer; token ids; or a whole request."""

PLAIN = SamplingParams()
"""Temperature 1 and a random seed."""


class RequestFields(TypedDict, total=False):
    """Fields of `GenerationRequest` that may be given with a prompt."""

    max_tokens: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    num_spec_tokens: int | None
    new_masks: NewTokenMasks | None


@define(eq=False)
class Engine:
    """Serves requests with one set of models; `Engine.of` and `acceptor.app.wiring` make one.

    `add_request` and `cancel` may be called from any thread and take effect in the next `step`.
    Everything else belongs to one thread. Parameters and fields given with a whole
    `GenerationRequest` are ignored.

    Attributes:
        loop: the parts of a step.
    """

    loop: Loop
    _parts: Parts
    _ids: Iterator[int] = field(factory=count, init=False)
    _queues: set[Queue] = field(factory=set, init=False)
    _driver: asyncio.Task[None] | None = field(default=None, init=False)
    _step_lock: Lock = field(factory=Lock, init=False)

    @classmethod
    def of(cls, parts: Parts, limits: Limits) -> "Engine":
        """Make an engine of these parts, and allocate the caches of all its slots.

        Raises:
            InvalidInputError: the limits do not fit the target.
            OutOfMemoryError: the caches do not fit the device.
        """
        max_len = limits.max_len or parts.target.max_model_len
        with typed_out_of_memory(
            f"caches of {limits.num_slots} slots of {max_len} tokens",
            parts.target.device,
            "lower num_slots or max_len",
        ):
            step = DecodeStep.allocate(parts, limits.num_slots, max_len)
        runner = parts.new_runner(step)
        loop = Loop(decode_step=step, runner=runner, prefill_tokens=limits.prefill_tokens)
        return cls(loop, parts)

    @property
    def memory_plan(self) -> MemoryPlan:
        """The uses of its memory, including memory that is allocated with the first requests."""
        memory = self.loop.decode_step
        return MemoryPlan.of(self._parts, memory.num_slots, memory.max_len)

    def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams = PLAIN,
        *,
        on_progress: OnProgress = ignore,
        **fields: Unpack[RequestFields],
    ) -> int:
        """Add a request; an invalid one ends with an error in the next step.

        Returns:
            The id that its `Progress` carries as `request_index`.

        Raises:
            InvalidInputError: on_progress cannot be called.
        """
        if not callable(on_progress):
            raise InvalidInputError(f"on_progress: expected a function, got {on_progress!r}")
        request_id, request, memory = next(self._ids), None, self.loop.decode_step
        try:
            request = self._request(prompt, params, fields)
            check_request(request, memory.target, memory.max_len)
        except AcceptorError as unfit:
            progress = refused(request_id, one_line(unfit), request, params)
            self.loop.events.append((on_progress, progress))
            return request_id
        state = RequestState(
            index=request_id,
            request=request,
            eos_token_ids=self._parts.eos_token_ids,
            max_len=memory.max_len,
            detokenizer=self._parts.new_detokenizer(),
            on_progress=on_progress,
        )
        self.loop.arrivals.append(state)
        return request_id

    def cancel(self, request_id: int) -> None:
        """End a request at its present length; one that has ended stays as it is.

        Raises:
            InvalidInputError: the id is not an integer.
        """
        check_integer("request_id", plain_number(request_id), 0)
        self.loop.cancelled_ids.append(request_id)

    def has_unfinished(self) -> bool:
        """Whether another step has work to do or progress to report."""
        return self.loop.has_unfinished()

    def step(self) -> list[Progress]:
        """Admit and retire requests, enter prompts, decode once; returns each request's progress.

        The target's device is the current one during a step, in any thread.

        Raises:
            InvalidInputError: another thread takes a step, or a listener calls this.
        """
        if not self._step_lock.acquire(blocking=False):
            raise InvalidInputError("step: expected one at a time, got one within another")
        try:
            # Kernels, streams and events without a named device use the current one.
            with torch.inference_mode(), torch.accelerator.device_index(self.loop.device.index):
                self.loop.admit_and_retire()
                self.loop.enter_prompts()
                self.loop.decode()
            return self.loop.notify()
        finally:
            self._step_lock.release()

    def __iter__(self) -> Iterator[Progress]:
        """Step until all requests have ended."""
        while self.has_unfinished():
            yield from self.step()

    def generate(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams = PLAIN,
        **fields: Unpack[RequestFields],
    ) -> list[GenerationResult]:
        """Decode prompts to their ends; the results are in the order of the prompts.

        Raises:
            InvalidInputError: one text came instead of several.
        """
        if isinstance(prompts, str):
            raise InvalidInputError(f"prompts: expected several, got {prompts!r}")
        ids = [self.add_request(prompt, params, **fields) for prompt in prompts]
        results: dict[int, GenerationResult] = {}
        while not results.keys() >= set(ids):
            for progress in self.step():
                if progress.result is not None:
                    results[progress.request_index] = progress.result
        return [results[request_id] for request_id in ids]

    async def stream(
        self, prompt: Prompt, params: SamplingParams = PLAIN, **fields: Unpack[RequestFields]
    ) -> AsyncIterator[Progress]:
        """Yield a request's progress, step by step; leaving the iteration early cancels it.

        Any number of streams of one event loop run at once. The steps run in a worker thread; do
        not call `step` or `generate` meanwhile. Whatever a step raises is raised here, too.
        """
        loop, queue, queues = asyncio.get_running_loop(), Queue(), self._queues

        def listen(progress: Progress) -> None:
            # The engine's requests hold this function, so it holds no reference to the engine. The
            # event loop may be closed before a step learns that the iteration was left.
            if queue in queues:
                loop.call_soon_threadsafe(queue.put_nowait, progress)

        queues.add(queue)
        try:
            request_id = self.add_request(prompt, params, on_progress=listen, **fields)
            self._drive()
            try:
                while True:
                    item = await queue.get()
                    if isinstance(item, Exception):
                        raise item
                    yield item
                    if item.result is not None:
                        return
            finally:
                self.cancel(request_id)
                self._drive()
        finally:
            queues.discard(queue)

    def _drive(self) -> None:
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._run())
            self._driver.add_done_callback(self._forget)

    def _forget(self, driver: asyncio.Task[None]) -> None:
        # A cancelled error holds its frames, and these hold the engine.
        if self._driver is driver:
            self._driver = None

    async def _run(self) -> None:
        try:
            while self.has_unfinished():
                await asyncio.to_thread(self.step)
        except Exception as error:  # noqa: BLE001, all waiting streams must get it, whatever it is
            for queue in self._queues:
                queue.put_nowait(error)

    def _request(
        self, prompt: Prompt, params: SamplingParams, fields: RequestFields
    ) -> GenerationRequest:
        if isinstance(prompt, GenerationRequest):
            return prompt
        if isinstance(prompt, str):
            check_text(prompt)
            if self._parts.encode is None:
                expected = "token ids without a tokenizer"
                raise InvalidInputError(f"prompt: expected {expected}, got {prompt!r}")
            prompt = self._parts.encode(prompt)
        return GenerationRequest(prompt_token_ids=prompt, params=params, **fields)
