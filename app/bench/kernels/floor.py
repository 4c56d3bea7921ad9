"""What no backend can beat: the time of reading logits once, and the bandwidth of reading a lot.

Both are measured with a plain read kernel in the run that they are compared with. It refuses to
guess them where the kernel cannot run.
"""

from collections.abc import Sequence
from statistics import median

import torch
from attrs import frozen
from torch import Tensor

from ....core.errors import UnavailableError
from .stopwatch import Stopwatch, capture

BANDWIDTH_BYTES = 2**32


@frozen
class Floor:
    """Median microseconds of reading once, by the fastest of several launch shapes.

    Attributes:
        cold: with nothing of it in the cache.
        warm: right after the same was read.
    """

    cold: float
    warm: float


def measure_floor(
    sets: Sequence[Sequence[Tensor]], stopwatch: Stopwatch, stream: torch.cuda.Stream
) -> Floor:
    """Read the tensors of one set after the other.

    Raises:
        UnavailableError: Triton is missing.
    """
    try:
        from ....backends.triton_backend.read_once import (  # noqa: PLC0415, Triton may be missing
            SHAPES,
            ReadOnce,
        )
    except ImportError as error:
        raise UnavailableError(
            f"floor: {error}; install with: pip install 'acceptor[triton]'"
        ) from error
    cold, warm = [], []
    for shape in SHAPES:
        with torch.cuda.stream(stream):
            calls = [ReadOnce(tensors, shape) for tensors in sets]
            for call in calls:
                call()
            replays = [graph.replay for graph in capture(calls, stream)]
            cold.append(median(stopwatch.replays(replays, cold=True)))
            warm.append(median(stopwatch.replays(replays[:1], cold=False)))
    return Floor(min(cold), min(warm))


def measure_bandwidth(stopwatch: Stopwatch, stream: torch.cuda.Stream) -> float:
    """Bytes per second when only reading, from 4 GiB.

    Raises:
        UnavailableError: Triton is missing.
    """
    lot = torch.zeros(BANDWIDTH_BYTES, dtype=torch.uint8, device=stopwatch.device)
    floor = measure_floor([[lot.view(torch.float32)]], stopwatch, stream)
    return BANDWIDTH_BYTES / (floor.cold * 1e-6)
