"""Records actions as CUDA graphs that share their memory.

CUDA aborts a capture if its thread destroys another graph meanwhile. An engine that is garbage
holds graphs, so no garbage is collected during a capture.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import torch
from attrs import define
from torch import Tensor

from ...core import LanguageModel
from ...core.policies.parameters import derived
from .out_of_memory import is_out_of_memory

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs an action once or more, and returns a function that repeats it."""

_capturing = Lock()


@contextmanager
def without_collecting() -> Iterator[None]:
    """Collect no garbage within; one thread at a time."""
    with _capturing:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


@define(eq=False)
class CudaRecorder:
    """Records CUDA graphs that share their memory, because they run one after the other.

    Attributes:
        newest: a graph that keeps the pool alive; CUDA frees a pool with its last graph.
    """

    pool: Any = derived(lambda _: torch.cuda.graph_pool_handle())
    newest: torch.cuda.CUDAGraph | None = None

    def __call__(self, action: Callable[[], None]) -> Callable[[], None]:
        """Run an action and capture it; return a function that replays it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                # This run compiles kernels, which a capture could not.
                action()
        finally:
            # Wait after an action that failed, too: kernels that it launched may still write.
            torch.cuda.current_stream().wait_stream(stream)
        # `_recover` may need this memory.
        spare = torch.zeros(1, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream), without_collecting():
            torch.cuda.synchronize()
            try:
                self._capture(graph, action)
            except BaseException:
                # A full device may lack memory for that, too; then report the first error.
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
            # Its own error would hide the one that ended the capture.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()

    def _recover(self, spare: Tensor) -> None:
        """Clean up after a failed capture.

        CUDA regards its pool as in use, and torch its random generator as being captured, until
        another capture succeeds.
        """
        self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        spare.zero_()
        graph.capture_end()


def can_be_captured(model: LanguageModel[Any]) -> bool:
    """Whether a forward never waits for the device: tried by recording one of a single token."""
    if model.device.type != "cuda":
        return False
    place = torch.zeros((1, 1), dtype=torch.int64, device=model.device)
    cache = model.new_cache(1, 1)

    def forward() -> None:
        model.forward(place, place, cache, place[0], max_position=0)

    try:
        CudaRecorder()(forward)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        return False
    return True
