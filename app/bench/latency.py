"""Latencies of requests, in milliseconds, by the field's names.

A step of speculative decoding emits several tokens at once, so inter-token latency is measured
between steps. Failed requests do not count.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from attrs import frozen

from ...core.errors import InvalidInputError
from .served import ServedRequest

MILLISECONDS = 1e3
PERCENTILES = (*range(0, 100, 5), 99, 100)


@frozen
class Distribution:
    """How measured values are spread; 0 and empty where nothing was measured.

    Attributes:
        mean: of all values.
        percentiles: one for each of `PERCENTILES`, interpolated linearly.

    Raises:
        InvalidInputError: there is another number of percentiles.
    """

    mean: float = 0.0
    percentiles: tuple[float, ...] = ()

    def __attrs_post_init__(self) -> None:
        if len(self.percentiles) not in (0, len(PERCENTILES)):
            raise InvalidInputError(
                f"percentiles: expected {len(PERCENTILES)} or none, got {len(self.percentiles)}"
            )

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution":
        """Of these values."""
        if not values:
            return cls()
        percentiles = np.percentile(values, PERCENTILES).tolist()
        return cls(float(np.mean(values)), tuple(percentiles))

    @property
    def median(self) -> float:
        """As many values are above as below."""
        return self._percentile(50)

    @property
    def p99(self) -> float:
        """One in a hundred is above."""
        return self._percentile(99)

    def _percentile(self, percent: int) -> float:
        return self.percentiles[PERCENTILES.index(percent)] if self.percentiles else 0.0


@frozen
class Latencies:
    """Measured values, in milliseconds.

    Attributes:
        ttft: time to first token: from the arrival, waiting and the prompt included.
        tpot: time per output token of each request, the first one left out.
        itl: inter-token latency: between steps that emitted tokens.
        e2el: end-to-end latency of each request.
    """

    ttft: tuple[float, ...]
    tpot: tuple[float, ...]
    itl: tuple[float, ...]
    e2el: tuple[float, ...]

    @classmethod
    def of(cls, requests: Iterable[ServedRequest]) -> "Latencies":
        """Of all requests that succeeded."""
        served = [request for request in requests if request.succeeded and request.steps]
        return cls(
            ttft=_milliseconds(request.time_to_first_token for request in served),
            tpot=_milliseconds(_per_token(request) for request in served if _has_rest(request)),
            itl=_milliseconds(
                after.time - before.time
                for request in served
                for before, after in pairwise(request.steps)
            ),
            e2el=_milliseconds(request.end_to_end for request in served),
        )


def _milliseconds(seconds: Iterable[float]) -> tuple[float, ...]:
    return tuple(MILLISECONDS * value for value in seconds)


def _has_rest(request: ServedRequest) -> bool:
    return request.output_len > request.steps[0].num_tokens


def _per_token(request: ServedRequest) -> float:
    # The first step's tokens came together, at the time of the first.
    rest = request.output_len - request.steps[0].num_tokens
    return (request.steps[-1].time - request.steps[0].time) / rest
