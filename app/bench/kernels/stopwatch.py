"""Times calls one by one: replays of CUDA graphs, and eager calls to their result.

The floor for every backend is the time in which a plain kernel reads the same bytes once.
"""

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median
from typing import Any

import torch
from attrs import define, field
from torch import Tensor

from ...engine.capture import CudaRecorder

Call = Callable[[], Any]

FLUSHED_BYTES = 256 * 2**20
"""Several times the size of level-2 caches of today's devices."""
FLOOR_COUNT = 30


@define(eq=False)
class Stopwatch:
    """Times calls on one device in microseconds, each with a cold cache. The calls take turns.

    Attributes:
        device: the device; a CPU has no graphs, and its caches are not flushed.
    """

    device: torch.device
    _flushed: Tensor = field(init=False)
    _floors: dict[int, float] = field(factory=dict, init=False)

    @_flushed.default
    def _make_flushed(self) -> Tensor:
        size = FLUSHED_BYTES if self.device.type == "cuda" else 1
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def replays(self, calls: Sequence[Call], count: int) -> list[float]:
        """Times between two events around each replay of a call's CUDA graph."""
        record = CudaRecorder()
        graphs = [record(call) for call in calls]
        pairs = [(_event(), _event()) for _ in range(count)]
        for replay, (start, end) in zip(cycle(graphs), pairs, strict=False):
            self._flushed.zero_()
            start.record()
            replay()
            end.record()
        self.wait()
        return [1000 * start.elapsed_time(end) for start, end in pairs]

    def eager(self, calls: Sequence[Call], count: int) -> list[float]:
        """Times from each call to its synchronised result, by the host's clock."""
        times = []
        for call in calls:
            call()
        for call in islice(cycle(calls), count):
            self._flushed.zero_()
            self.wait()
            start = time.perf_counter()
            call()
            self.wait()
            times.append(1e6 * (time.perf_counter() - start))
        return times

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def floor(self, num_bytes: int) -> float | None:
        """The median time to read these bytes at the fastest shape; None without CUDA or Triton.

        Each number of bytes is measured once.
        """
        if self.device.type != "cuda":
            return None
        try:
            from .read_once import SHAPES, read_once  # noqa: PLC0415, Triton may be missing
        except ImportError:
            return None
        if num_bytes not in self._floors:
            words = torch.zeros(num_bytes // 4, dtype=torch.int32, device=self.device)
            times = (self.replays([read_once(words, shape)], FLOOR_COUNT) for shape in SHAPES)
            self._floors[num_bytes] = min(map(median, times))
        return self._floors[num_bytes]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
