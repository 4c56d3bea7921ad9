"""Latencies of requests, in milliseconds, by the field's names."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from attrs import frozen

from ..request import FinishReason, RequestRecord

MILLISECONDS = 1e3
NAMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
}
SUCCESS = (FinishReason.STOP, FinishReason.LENGTH)
PERCENTILES = (*range(0, 100, 5), 99, 100)


@frozen
class Distribution:
    """The distribution of measured values; 0 and empty if nothing was measured.

    Attributes:
        median: as many values are above as below.
        p99: one in a hundred is above.
        percentiles: one for each of `PERCENTILES`, interpolated linearly; some records have none.
    """

    mean: float = 0.0
    median: float = 0.0
    p99: float = 0.0
    percentiles: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution":
        """The distribution of these values."""
        if not values:
            return cls()
        spread = dict(zip(PERCENTILES, np.percentile(values, PERCENTILES).tolist(), strict=True))
        return cls(float(np.mean(values)), spread[50], spread[99], tuple(spread.values()))


def latencies_of(records: Iterable[RequestRecord]) -> dict[str, list[float]]:
    """Milliseconds of requests that ended without an error, by the names in `Figures`."""
    ended = [one for one in records if one.status in SUCCESS and one.token_times]
    seconds = {
        "ttft": [one.token_times[0][0] - one.arrival_time for one in ended],
        "tpot": [
            (one.token_times[-1][0] - one.token_times[0][0]) / num_rest
            for one in ended
            # The first step's tokens all came at the time of the first one.
            if (num_rest := one.output_len - one.token_times[0][1])
        ],
        "itl": [end - begin for one in ended for (begin, _), (end, _) in pairwise(one.token_times)],
        "e2el": [one.finish_time - one.arrival_time for one in ended],
    }
    return {name: [MILLISECONDS * one for one in values] for name, values in seconds.items()}
