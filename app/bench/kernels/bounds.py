"""How long the fused backends may take on an H200, whatever the inputs and the recipe."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ....core.policies import POLICIES
from .results import Line
from .workload import Workload

BOUNDS: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "cupy": {1: 35, 16: 70, 64: 120, 256: 320},
        "triton": {1: 60, 16: 120, 64: 200, 256: 520},
    }
)
"""Backend -> batch size -> microseconds, of workloads with the usual K, vocabulary and dtype."""

MORE_WORK = 1.5
"""Times as long for lossy policies, which compare more, and for logprobs."""


def bound(backend: str, line: Line, lines: Sequence[Line]) -> float | None:
    """What one backend may take on a line; None where nothing is promised or known.

    Another shape may take the same multiple of its own floor, so lines must have one of the usual
    shape and of the same batch size.
    """
    workload = line.workload
    usual = BOUNDS.get(backend, {}).get(workload.num_reqs)
    if usual is None:
        return None
    if workload.logprobs is not None or not POLICIES[workload.policy].lossless:
        usual *= MORE_WORK
    plain = Workload(num_reqs=workload.num_reqs, inputs=workload.inputs)
    if workload.shape == plain.shape:
        return usual
    floor = next((one.floor for one in lines if one.workload == plain), None)
    return usual * line.floor / floor if line.floor and floor else None
