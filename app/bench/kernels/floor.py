"""What no backend can beat: the time of reading so many bytes once.

It is measured by a plain read kernel in the run that it is compared with.
"""

from statistics import median

import torch
from attrs import define, field, frozen

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


@define(eq=False)
class Floors:
    """Measures each number of bytes once.

    Attributes:
        stopwatch: times on the device.
    """

    stopwatch: Stopwatch
    _known: dict[int, Floor] = field(factory=dict, init=False)

    def of(self, num_bytes: int) -> Floor | None:
        """The floor of a call that must read so many bytes; None without CUDA or Triton."""
        if self.stopwatch.device.type != "cuda":
            return None
        if num_bytes not in self._known:
            try:
                self._known[num_bytes] = measure_floor(num_bytes, self.stopwatch)
            except UnavailableError:
                return None
        return self._known[num_bytes]

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second when only reading, from 4 GiB; None without CUDA or Triton."""
        floor = self.of(BANDWIDTH_BYTES)
        return None if floor is None else BANDWIDTH_BYTES / (floor.cold * 1e-6)


def measure_floor(num_bytes: int, stopwatch: Stopwatch) -> Floor:
    """Read so many bytes.

    Raises:
        UnavailableError: Triton is missing.
    """
    try:
        from .read_once import SHAPES, ReadOnce  # noqa: PLC0415, Triton may be missing
    except ImportError as error:
        raise UnavailableError(
            f"floor: {error}; install with: pip install 'acceptor[triton]'"
        ) from error
    words = torch.zeros(num_bytes // 4, dtype=torch.int32, device=stopwatch.device)
    stream = torch.cuda.Stream(stopwatch.device)
    stream.wait_stream(torch.cuda.current_stream(stopwatch.device))
    cold, warm = [], []
    with torch.cuda.stream(stream):
        for shape in SHAPES:
            call = ReadOnce(words, shape)
            call()
            replays = [graph.replay for graph in capture([call], stream)]
            cold.append(median(stopwatch.replays(replays, cold=True)))
            warm.append(median(stopwatch.replays(replays, cold=False)))
    return Floor(min(cold), min(warm))
