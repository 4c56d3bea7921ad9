"""What no backend can beat: the time of reading so many bytes once, by a plain kernel."""

from statistics import median

import torch
from attrs import define, field

from .stopwatch import Stopwatch

BANDWIDTH_BYTES = 2**32
COUNT = 30


@define(eq=False)
class Floors:
    """Measures each number of bytes once.

    Attributes:
        stopwatch: times on the device.
    """

    stopwatch: Stopwatch
    _known: dict[int, float | None] = field(factory=dict, init=False)

    def of(self, num_bytes: int) -> float | None:
        """Median microseconds of the fastest launch shape; None without CUDA or Triton."""
        if num_bytes not in self._known:
            self._known[num_bytes] = self._measure(num_bytes)
        return self._known[num_bytes]

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second when only reading, from 4 GiB; None without CUDA or Triton."""
        floor = self.of(BANDWIDTH_BYTES)
        return None if floor is None else BANDWIDTH_BYTES / (floor * 1e-6)

    def _measure(self, num_bytes: int) -> float | None:
        device = self.stopwatch.device
        if device.type != "cuda":
            return None
        try:
            from .read_once import SHAPES, ReadOnce  # noqa: PLC0415, Triton may be missing
        except ImportError:
            return None
        words = torch.zeros(num_bytes // 4, dtype=torch.int32, device=device)
        calls = (ReadOnce(words, shape) for shape in SHAPES)
        return min(median(self.stopwatch.replays([call], COUNT)) for call in calls)
