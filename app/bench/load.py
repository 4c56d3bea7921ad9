"""Puts requests to an engine as a load says, and keeps what was observed of each.

A request waits for its turn outside the engine, so its latency counts from when it was handed over.
"""

from collections import deque
from collections.abc import Iterable
from time import perf_counter, sleep

import numpy as np
from attrs import frozen

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


def serve(
    engine: Engine,
    arrivals: Iterable[TimedRequest],
    max_concurrency: int,
    on_ended: OnEnded = lambda _: None,
) -> list[Served]:
    """Serve requests as they come, so many at once at most; the result is as they ended."""
    waiting = deque(sorted(arrivals, key=lambda arrival: arrival.at))
    inside, served, began = dict[int, str](), list[Served](), perf_counter()
    while waiting or inside:
        now = perf_counter() - began
        while waiting and waiting[0].at <= now and len(inside) < max_concurrency:
            arrival = waiting.popleft()
            inside[engine.add_request(arrival.request)] = arrival.category
        if not inside:
            sleep(waiting[0].at - now)
            continue
        ended = [event.record for event in engine.step() if event.record is not None]
        served += [Served(one, inside.pop(one.request_id)) for one in ended]
        on_ended(len(ended))
    return served
