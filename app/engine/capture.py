"""Recording an action as CUDA graphs that share their memory.

CUDA breaks a capture off if its thread destroys another graph meanwhile. An engine that nobody
needs any more has graphs, so no garbage is collected during a capture.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import torch
from attrs import define
from torch import Tensor

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs an action once or more, and returns what repeats it."""

_capturing = Lock()


@contextmanager
def without_collecting() -> Iterator[None]:
    """Collect no garbage meanwhile; one thread at a time."""
    with _capturing:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


@define(eq=False)
class _CudaRecorder:
    """See `cuda_recorder`.

    Attributes:
        pool: the memory that graphs share.
        newest: a graph that keeps the pool, which CUDA would give up with the last one.
    """

    pool: Any
    newest: torch.cuda.CUDAGraph | None = None

    def __call__(self, action: Callable[[], None]) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                # Compiles what is still to be compiled, which a capture could not.
                action()
        finally:
            # Also of an action that broke off: what it has launched may still write.
            torch.cuda.current_stream().wait_stream(stream)
        # Of use to `_recover`, which may find no memory.
        spare = torch.zeros(1, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream), without_collecting():
            torch.cuda.synchronize()
            try:
                self._capture(graph, action)
            except BaseException:
                # A full device may have no memory for that either, and is told of first.
                with suppress(RuntimeError):
                    self._recover(spare)
                raise
        self.newest = graph
        return graph.replay

    def _capture(self, graph: torch.cuda.CUDAGraph, action: Callable[[], None]) -> None:
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            action()
        except BaseException:
            # Its own error would hide the one that broke the capture off.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()

    def _recover(self, spare: Tensor) -> None:
        """Leave nothing behind of a capture that broke off.

        Its pool still counts as in use, and the random generator as being captured, until another
        capture ends well.
        """
        self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        spare.zero_()
        graph.capture_end()


def cuda_recorder() -> Record:
    """Captures CUDA graphs that share their memory, because they run one after the other."""
    return _CudaRecorder(torch.cuda.graph_pool_handle())
