"""Times on a GPU, by its own clock; this module refuses to time single runs.

On a CPU, where nothing runs behind the caller's back, the caller's clock serves: so a run can be
rehearsed where there is no GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from ..capture import Record, cuda_recorder

_MIB = 2**20


def milliseconds(action: Callable[[], object], device: torch.device, repeats: int = 20) -> float:
    """The median time of an action that has been run before."""
    return float(median(stopwatch(action, device)() for _ in range(repeats)))


def stopwatch(action: Callable[[], object], device: torch.device) -> Callable[[], float]:
    """Run an action; what is returned waits for its end and says how many milliseconds it took."""
    if device.type == "cpu":
        began = perf_counter()
        action()
        taken = 1000 * (perf_counter() - began)
        return lambda: taken
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    action()
    end.record()

    def read() -> float:
        end.synchronize()
        return float(start.elapsed_time(end))

    return read


def recorder(device: torch.device) -> Record:
    """What captures a CUDA graph or, on a CPU, repeats the action itself."""
    return cuda_recorder() if device.type == "cuda" else _repeating


def _repeating(action: Callable[[], None]) -> Callable[[], None]:
    action()
    return action


def bandwidth(device: torch.device, num_mib: int = 4096) -> float:
    """Bytes per second that memory delivers: the best of copying and of reading so much."""
    source = torch.ones(num_mib * _MIB // 2, dtype=torch.bfloat16, device=device)
    goal = torch.empty_like(source)
    ways = [(2, lambda: goal.copy_(source)), *((1, reader) for reader in _readers(source))]
    return max(times * source.nbytes / _warm_seconds(way, device) for times, way in ways)


def _readers(source: Tensor) -> Iterator[Callable[[], Tensor]]:
    yield lambda: source.view(torch.int32).amax()
    if source.is_cuda:
        with suppress(ImportError):
            from ....backends.triton_backend.read_once import (  # noqa: PLC0415, Triton may be missing
                SHAPES,
                ReadOnce,
            )

            yield from (ReadOnce([source], shape) for shape in SHAPES)


def _warm_seconds(action: Callable[[], Tensor], device: torch.device) -> float:
    for _ in range(3):
        action()
    return milliseconds(action, device) / 1000
