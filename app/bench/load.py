"""Puts requests to an engine as a load says, and keeps what was observed of each.

A request waits for its turn outside the engine, so its latency counts from when it was handed over.
"""

from collections import deque
from collections.abc import Iterable
from time import perf_counter, sleep

import numpy as np
from attrs import define, field, frozen

from ..engine.engine import Engine
from ..request import GenerationRequest, RequestRecord
from .progress import OnEnded


@frozen
class TimedRequest:
    """A request, the category of its prompt, and the second at which it comes."""

    request: GenerationRequest
    category: str
    at: float = 0.0


@frozen
class Served:
    """What the engine recorded of a request that has ended, and the category of its prompt."""

    record: RequestRecord
    category: str


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
        on_ended: told how many requests ended in a step.
    """

    engine: Engine
    max_concurrency: int
    on_ended: OnEnded = lambda _: None
    _inside: dict[int, str] = field(factory=dict, init=False)
    _served: list[Served] = field(factory=list, init=False)

    def serve(self, arrivals: Iterable[TimedRequest]) -> list[Served]:
        """Serve all of them, in the order in which they come; the result is as they ended."""
        waiting = deque(sorted(arrivals, key=lambda arrival: arrival.at))
        began = perf_counter()
        while waiting or self._inside:
            now = perf_counter() - began
            while waiting and waiting[0].at <= now and len(self._inside) < self.max_concurrency:
                arrival = waiting.popleft()
                self._inside[self.engine.add_request(arrival.request)] = arrival.category
            if self._inside:
                self._step()
            else:
                sleep(max(0.0, waiting[0].at - (perf_counter() - began)))
        return self._served

    def _step(self) -> None:
        ended = [event.record for event in self.engine.step() if event.record is not None]
        self._served += [Served(one, self._inside.pop(one.request_id)) for one in ended]
        self.on_ended(len(ended))
