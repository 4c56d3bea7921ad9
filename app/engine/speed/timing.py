"""Times on a GPU, by its own clock; this module refuses to time single runs."""

from collections.abc import Callable
from statistics import median

import torch

_MIB = 2**20


def milliseconds(action: Callable[[], object], repeats: int = 20) -> float:
    """The median time of an action that has been run before."""
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        action()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(median(times))


def bandwidth(device: torch.device | str = "cuda") -> float:
    """Bytes per second that memory delivers: the better of copying and of reading 4 GiB."""
    source = torch.ones(2048 * _MIB, dtype=torch.bfloat16, device=device)
    goal = torch.empty_like(source)
    for _ in range(3):
        goal.copy_(source)
        source.view(torch.int32).amax()
    copying = 2 * source.nbytes / milliseconds(lambda: goal.copy_(source))
    reading = source.nbytes / milliseconds(lambda: source.view(torch.int32).amax())
    return 1000.0 * max(copying, reading)
