"""Async iteration over what requests gain, for any number of them at once.

One task drives the steps in a worker thread as long as there is something to do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from attrs import define, field

from ..request import OnProgress, Progress

Queue = asyncio.Queue[Progress | Exception]


@define(eq=False)
class Streams:
    """The streams of one engine, which they do not hold on to."""

    _queues: set[Queue] = field(factory=set, init=False)
    _driver: asyncio.Task[None] | None = field(default=None, init=False)

    async def follow(
        self, engine: Any, add: Callable[[OnProgress], int]
    ) -> AsyncIterator[Progress]:
        """Add a request to the engine of all these streams and yield what it gains.

        It is cancelled if it is left early; whatever a step raises is raised here, too.
        """
        loop, queue = asyncio.get_running_loop(), Queue()

        def tell(progress: Progress) -> None:
            # A step may find out later that a request was left, when its loop is closed.
            if queue in self._queues:
                loop.call_soon_threadsafe(queue.put_nowait, progress)

        self._queues.add(queue)
        try:
            request_id = add(tell)
            self._drive(engine)
            try:
                async for progress in _until_result(queue):
                    yield progress
            finally:
                engine.cancel(request_id)
                self._drive(engine)
        finally:
            self._queues.discard(queue)

    def _drive(self, engine: Any) -> None:
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._run(engine))
            self._driver.add_done_callback(self._forget)

    def _forget(self, driver: asyncio.Task[None]) -> None:
        # One that was cancelled keeps the frames that it was in, and these the engine.
        if self._driver is driver:
            self._driver = None

    async def _run(self, engine: Any) -> None:
        try:
            while engine.has_unfinished():
                await asyncio.to_thread(engine.step)
        except Exception as error:  # noqa: BLE001, those who wait must hear of it, whatever it is
            for queue in self._queues:
                queue.put_nowait(error)


async def _until_result(queue: Queue) -> AsyncIterator[Progress]:
    while True:
        item = await queue.get()
        if isinstance(item, Exception):
            raise item
        yield item
        if item.result is not None:
            return
