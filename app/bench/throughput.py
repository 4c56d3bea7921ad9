"""Tokens and requests over time."""

from collections.abc import Sequence

import numpy as np

from ..request import RequestRecord

WINDOW_SECONDS = 1.0
"""What the peak is measured over; the whole run where that is shorter."""


def duration_of(records: Sequence[RequestRecord]) -> float:
    """Seconds from the first arrival to the last end; 0 without requests."""
    began = min((one.arrival_time for one in records), default=0.0)
    return max((one.finish_time for one in records), default=0.0) - began


def peak_output_throughput(records: Sequence[RequestRecord]) -> float:
    """The most output tokens per second in any window that ends with a step."""
    steps = sorted(step for one in records for step in one.token_times)
    if not steps:
        return 0.0
    window = min(WINDOW_SECONDS, duration_of(records))
    times = np.array([time for time, _ in steps])
    emitted = np.concatenate(([0], np.cumsum([num_tokens for _, num_tokens in steps])))
    first_inside = np.searchsorted(times, times - window, side="right")
    last_inside = np.searchsorted(times, times, side="right")
    return float((emitted[last_inside] - emitted[first_inside]).max() / window)


def peak_concurrency(records: Sequence[RequestRecord]) -> int:
    """How many requests were under way at once, at most."""
    changes = [(one.arrival_time, 1) for one in records]
    # At the same moment an end comes before an arrival.
    changes += [(one.finish_time, -1) for one in records]
    return int(max(np.cumsum([change for _, change in sorted(changes)]), default=0))
