"""Latencies of requests, in milliseconds, by the field's names."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from attrs import frozen

from ...core.errors import InvalidInputError
from ..request import FinishReason, RequestRecord

MILLISECONDS = 1e3
SUCCESS = (FinishReason.STOP, FinishReason.LENGTH)
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


def latencies_of(records: Iterable[RequestRecord]) -> dict[str, list[float]]:
    """Milliseconds of requests that ended as they should, by the names in `Figures`.

    A step of speculative decoding emits several tokens at once, so inter-token latency is measured
    between steps.
    """
    ended = [one for one in records if one.status in SUCCESS and one.token_times]
    seconds = {
        "ttft": [one.token_times[0][0] - one.arrival_time for one in ended],
        "tpot": [
            (one.token_times[-1][0] - one.token_times[0][0]) / num_rest
            for one in ended
            # The first step's tokens came together, at the time of the first.
            if (num_rest := one.output_len - one.token_times[0][1])
        ],
        "itl": [
            after - before for one in ended for (before, _), (after, _) in pairwise(one.token_times)
        ],
        "e2el": [one.finish_time - one.arrival_time for one in ended],
    }
    return {name: [MILLISECONDS * one for one in values] for name, values in seconds.items()}
