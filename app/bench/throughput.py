"""Tokens and requests over time."""

from collections.abc import Sequence

import numpy as np

from .served import ServedRequest

WINDOW_SECONDS = 1.0
"""What the peak is measured over; the whole run where that is shorter."""


def duration_of(requests: Sequence[ServedRequest]) -> float:
    """Seconds from the first arrival to the last end; 0 without requests."""
    if not requests:
        return 0.0
    began = min(request.arrival_time for request in requests)
    return max(request.finish_time for request in requests) - began


def peak_output_throughput(requests: Sequence[ServedRequest]) -> float:
    """The most output tokens per second in any window that ends with a step."""
    steps = sorted((step.time, step.num_tokens) for request in requests for step in request.steps)
    if not steps:
        return 0.0
    window = min(WINDOW_SECONDS, duration_of(requests))
    times = np.array([time for time, _ in steps])
    emitted = np.concatenate(([0], np.cumsum([num_tokens for _, num_tokens in steps])))
    first_inside = np.searchsorted(times, times - window, side="right")
    last_inside = np.searchsorted(times, times, side="right")
    return float((emitted[last_inside] - emitted[first_inside]).max() / window)


def peak_concurrency(requests: Sequence[ServedRequest]) -> int:
    """How many requests were under way at once, at most."""
    changes = [(request.arrival_time, 1) for request in requests]
    changes += [(request.finish_time, -1) for request in requests]
    # At the same moment an end comes before an arrival.
    return int(max(np.cumsum([change for _, change in sorted(changes)]), default=0))
