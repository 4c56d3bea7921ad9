"""An unused engine is freed at once, and never during another one's capture."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import MagicMock
from weakref import ref

import pytest
import torch
from attrs import define
from torch import Tensor

from acceptor.app.engine.capture import CudaRecorder
from acceptor.app.engine.engine import Engine
from acceptor.core import Probabilistic, SamplingParams
from kit.toy_pair import Pair, engine_with, run
from kit.toy_pair import record as run_again

Action = Callable[[], None]


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_an_engine_goes_with_its_last_reference(pair: Pair) -> None:
    """It is not left to the garbage collector, which may run while another engine captures."""
    recorded: list[Action] = []

    def record(action: Action) -> Action:
        recorded.append(action)
        return partial(replay, len(recorded) - 1)

    def replay(place: int) -> None:
        recorded[place]()

    async def read(engine: Engine) -> int:
        return sum([len(p.token_ids) async for p in engine.stream([1, 2], max_tokens=6)])

    with no_collector():
        engine = engine_with(pair.decoder(Probabilistic(), 3), record)
        engine.generate([[1], [2]], SamplingParams(seed=1), max_tokens=6)
        assert asyncio.run(read(engine)) == 6
        gone = ref(engine), ref(engine.loop), ref(engine.loop.runner)
        recorded.clear()
        del engine
        assert [one() for one in gone] == [None] * 3


def test_ended_requests_go_with_the_next_step(pair: Pair) -> None:
    def listen(_: object) -> None:
        return

    engine = engine_with(pair.decoder(Probabilistic(), 3), run_again)
    with no_collector():
        engine.add_request([1], SamplingParams(seed=1), max_tokens=6, on_progress=listen)
        gone = ref(listen)
        del listen
        run(engine)
        engine.step()
        assert gone() is None


@define(eq=False)
class Graphs:
    """Replaces CUDA: destroying a graph aborts a running capture."""

    capturing: bool = False
    broken: bool = False
    full: bool = False
    num_captured: int = 0

    def new(self) -> "Graph":
        return Graph(self)


@define(eq=False)
class Graph:
    graphs: Graphs

    def capture_begin(self, **how: Any) -> None:  # noqa: ARG002, as torch's
        self.graphs.capturing, self.graphs.broken = True, False

    def capture_end(self) -> None:
        self.graphs.capturing = False
        if self.graphs.broken:
            raise RuntimeError("operation failed due to a previous error during capture")
        if self.graphs.full:
            raise RuntimeError("CUDA error: out of memory")
        self.graphs.num_captured += 1

    def replay(self) -> None:
        pass

    def __del__(self) -> None:
        self.graphs.broken |= self.graphs.capturing


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    graphs = Graphs()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", graphs.new)
    monkeypatch.setattr(torch, "zeros", MagicMock())
    for name in ("Stream", "current_stream", "stream", "synchronize", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    return graphs


def test_no_garbage_is_collected_during_a_capture(graphs: Graphs) -> None:
    def action() -> None:
        dropped: list[Any] = [graphs.new()]
        dropped.append(dropped)
        del dropped
        # Many more objects than the collector waits for.
        assert len([[] for _ in range(100_000)]) == 100_000

    replay = CudaRecorder()(action)
    assert graphs.num_captured == 1
    assert gc.isenabled()
    replay()


def test_a_capture_that_breaks_off_leaves_the_next_one_whole(graphs: Graphs) -> None:
    """It raises its own error, not the one of ending it, and the next capture succeeds."""
    record, attempts = CudaRecorder(), count()

    def fails_when_captured() -> None:
        if next(attempts):
            graphs.new()
            raise ValueError("not while captured")

    with pytest.raises(ValueError, match="not while captured"):
        record(fails_when_captured)
    assert (graphs.num_captured, graphs.capturing, gc.isenabled()) == (1, False, True)
    record(lambda: None)
    assert graphs.num_captured == 2


def test_a_full_device_tells_what_was_asked(graphs: Graphs) -> None:
    """It does not report the lack of memory for ending the capture."""
    attempts = count()

    def asks_too_much() -> None:
        if next(attempts):
            graphs.full = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with pytest.raises(torch.OutOfMemoryError):
        CudaRecorder()(asks_too_much)


def fill(out: Tensor, value: float) -> None:
    out.fill_(value)


@pytest.mark.gpu
def test_a_recorder_goes_on_when_its_graphs_are_gone() -> None:
    record, out = CudaRecorder(), torch.zeros(4, device="cuda")
    for value in (1.0, 2.0):
        record(partial(fill, out, value))()
    assert out.tolist() == [2.0] * 4


@pytest.mark.gpu
@pytest.mark.parametrize(
    "breaks",
    [torch.cuda.synchronize, lambda: torch.empty(2**50, dtype=torch.uint8, device="cuda")],
    ids=["waits", "asks too much"],
)
def test_a_capture_that_breaks_off_on_a_gpu_leaves_random_numbers_and_captures_whole(
    breaks: Callable[[], object],
) -> None:
    record, attempts, out = CudaRecorder(), count(), torch.zeros(4, device="cuda")

    def breaks_when_captured() -> None:
        if next(attempts):
            out.add_(1)
            breaks()

    with pytest.raises(RuntimeError):
        record(breaks_when_captured)
    assert torch.rand(4, device="cuda").max() < 1
    replay = record(partial(fill, out, 3.0))
    out.zero_()
    replay()
    assert out.tolist() == [3.0] * 4
