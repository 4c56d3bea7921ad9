"""Puts requests to an engine as a load says, and keeps what was observed of each.

A request waits for its turn outside the engine, so its latency counts from when it was handed over.
"""

from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter, sleep

import numpy as np
from attrs import define, field, frozen

from ..engine.engine import Engine
from ..request import GenerationRequest, RequestRecord


@frozen
class Arrival:
    """A request, the category of its prompt, and the second at which it comes."""

    request: GenerationRequest
    category: str
    at: float = 0.0


@frozen
class Served:
    """What the engine recorded of a request that has ended, and the category of its prompt."""

    record: RequestRecord
    category: str


@frozen
class Gain:
    """What a step brought: tokens, and requests that ended."""

    num_tokens: int
    num_ended: int


def poisson_times(count: int, request_rate: float | None, seed: int) -> list[float]:
    """When requests come, in seconds: at a mean rate per second, or all at once for None."""
    if request_rate is None:
        return [0.0] * count
    gaps = np.random.default_rng(seed).exponential(1 / request_rate, size=count)
    return [float(time) for time in np.cumsum(gaps)]


@define(eq=False)
class LoadRun:
    """Arrivals on their way through an engine.

    Attributes:
        engine: serves them.
        max_concurrency: how many may be inside at once.
        on_step: told what each step brought.
    """

    engine: Engine
    max_concurrency: int
    on_step: Callable[[Gain], None]
    _inside: dict[int, str] = field(factory=dict, init=False)
    _served: list[Served] = field(factory=list, init=False)

    def serve(self, arrivals: Iterable[Arrival]) -> list[Served]:
        """Serve all of them, in the order in which they come; the result is as they ended."""
        waiting = deque(sorted(arrivals, key=lambda arrival: arrival.at))
        began = perf_counter()
        while waiting or self._inside:
            self._admit(waiting, perf_counter() - began)
            if self._inside:
                self._step()
            else:
                sleep(max(0.0, waiting[0].at - (perf_counter() - began)))
        return self._served

    def _admit(self, waiting: deque[Arrival], now: float) -> None:
        while waiting and waiting[0].at <= now and len(self._inside) < self.max_concurrency:
            arrival = waiting.popleft()
            self._inside[self.engine.add_request(arrival.request)] = arrival.category

    def _step(self) -> None:
        num_tokens, num_before = 0, len(self._served)
        for event in self.engine.step():
            num_tokens += len(event.token_ids)
            if event.record is not None:
                category = self._inside.pop(event.request_index)
                self._served.append(Served(event.record, category))
        self.on_step(Gain(num_tokens, len(self._served) - num_before))
