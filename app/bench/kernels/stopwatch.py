"""How long calls take, one by one: replays of CUDA graphs, and eager calls to their result."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

Call = Callable[[], object]


class Timed(Protocol):
    """A method of `Stopwatch`."""

    def __call__(self, calls: Sequence[Call], /, *, cold: bool) -> list[float]:
        """Microseconds of calls that take turns."""
        ...


FLUSHED_BYTES = 256 * 2**20
"""Several times what the level-2 caches of today's devices hold."""
BUSY_CYCLES = 200_000
"""About 0.1 ms for which the device waits before a warm replay, so that the host is ahead of it."""


@frozen(eq=False)
class Stopwatch:
    """Times calls on one device, in microseconds.

    Attributes:
        device: where; on a CPU there is nothing to flush, and no graph.
        count: how often.
        flushed: what is written between cold calls.
    """

    device: torch.device
    count: int
    flushed: Tensor

    @classmethod
    def on(cls, device: torch.device, count: int) -> "Stopwatch":
        """A stopwatch with its own memory to flush."""
        size = FLUSHED_BYTES if device.type == "cuda" else 1
        return cls(device, count, torch.empty(size, dtype=torch.uint8, device=device))

    def replays(self, graphs: Sequence[Call], *, cold: bool) -> list[float]:
        """Between two events around each replay; the graphs take turns."""
        pairs = [_events() for _ in range(self.count)]
        for turn, (start, end) in enumerate(pairs):
            replay = graphs[turn % len(graphs)]
            self._prepare(replay, cold=cold)
            if not cold:
                torch.cuda._sleep(BUSY_CYCLES)  # noqa: SLF001, PyTorch has no public one
            start.record()
            replay()
            end.record()
        self.wait()
        return [1000 * start.elapsed_time(end) for start, end in pairs]

    def eager(self, calls: Sequence[Call], *, cold: bool) -> list[float]:
        """From the call to its synchronised result, by the host's clock; the calls take turns."""
        times = []
        for turn in range(self.count):
            call = calls[turn % len(calls)]
            self._prepare(call, cold=cold)
            self.wait()
            start = time.perf_counter()
            call()
            self.wait()
            times.append(1e6 * (time.perf_counter() - start))
        return times

    def wait(self) -> None:
        """Until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _prepare(self, call: Call, *, cold: bool) -> None:
        if cold:
            self.flushed.zero_()
        else:
            call()


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def capture(calls: Sequence[Call], stream: torch.cuda.Stream) -> list[torch.cuda.CUDAGraph]:
    """One graph for each call; every call must have run on this stream before."""
    graphs = []
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        graphs.append(graph)
    return graphs
