"""The CuPy sampler: a few launches of CUDA C++ on torch's current stream.

It never waits for the device, except to compile or load a kernel that is needed for the first time.
"""

import threading
from array import array
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor

from ...core import InvalidInputError, Policy, SampleBatch, SamplingTensors, VerifyBatch
from ..both_verbs import BothVerbs, Output, Verb
from ..inverse_maps import InverseMaps
from .arguments import job_of
from .cache import CompiledKernels
from .device import Device
from .plan import Plan, Plans, enter_addresses


@frozen(eq=False)
class CupySampler(BothVerbs):
    """A `Sampler` for CUDA tensors, safe to share between threads and streams.

    Without a caller's workspace each stream gets its own.

    Attributes:
        compiled: the store of compiled kernels.
    """

    compiled: CompiledKernels = field(factory=CompiledKernels)
    _devices: dict[int, Device] = field(factory=dict, init=False)
    _workspaces: dict[tuple[int, int], Tensor] = field(factory=dict, init=False)
    # CUDA graphs may still use them.
    _outgrown: list[Tensor] = field(factory=list, init=False)
    _plans: Plans = field(factory=Plans, init=False)
    _inverses: InverseMaps = field(factory=InverseMaps, init=False)
    # Launches of one call must follow each other on their stream.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def _num_bytes(self, batch: Any, params: SamplingTensors, policy: Policy | None = None) -> int:
        return job_of(batch, params, policy).extent.num_bytes

    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        batch, params, *rule = given
        with self._lock:
            plan = self._plans.of(batch, params, rule[0] if rule else None, self._device)
            if out is None:
                out = verb.empty_output(*given)
            elif out not in plan.outputs:
                verb.check_output(out, *given)
                plan.outputs.add(out)
            id_map = self._inverses.of(batch.draft_to_target, plan.extent.vocab_size)
            words = plan.words_in(self._workspace(plan, workspace))
            enter_addresses(words, batch, params, id_map, out)
            self._enqueue(plan, words)
        return out

    def _device(self, batch: VerifyBatch | SampleBatch) -> Device:
        device = batch.positions.device
        index = device.index
        if device.type != "cuda":
            name = "target_logits" if isinstance(batch, VerifyBatch) else "logits"
            raise InvalidInputError(f"{name}: expected a CUDA device, got {device}")
        known = self._devices.get(index)
        if known is None:
            known = self._devices[index] = Device.open(index, self.compiled)
        return known

    def _workspace(self, plan: Plan, given: Tensor | None) -> Tensor:
        if given is not None:
            return given
        index = plan.device.index
        place = index, _current_stream(index)
        known = self._workspaces.get(place)
        if known is None or known.numel() < plan.extent.num_bytes:
            if known is not None:
                self._outgrown.append(known)
            size, where = plan.extent.num_bytes, torch.device("cuda", index)
            known = self._workspaces[place] = torch.zeros(size, dtype=torch.uint8, device=where)
        return known

    def _enqueue(self, plan: Plan, words: "array[int]") -> None:
        index = plan.device.index
        if plan.extent.num_reqs == 0:
            return
        # The driver launches on the current device, and stream 0 is that one's.
        if torch._C._cuda_getDevice() != index:  # noqa: SLF001, without torch's own checks
            with torch.cuda.device(index):
                self._enqueue(plan, words)
            return
        stream = _current_stream(index)
        address, count = words.buffer_info()
        words[-1] = address
        try:
            for order, (kernel, grid) in enumerate(plan.launches):
                kernel.launch(grid, stream, address + 8 * (count - 1), order > 0)
        except BaseException:
            # The next step would misread what a launch has left for the launch after it.
            for place in [place for place in self._workspaces if place == (index, stream)]:
                self._outgrown.append(self._workspaces.pop(place))
            raise


def _current_stream(index: int) -> int:
    # The raw handle is fifty times cheaper to get than a Stream object.
    stream: int = torch._C._cuda_getCurrentRawStream(index)  # noqa: SLF001
    return stream
