"""Loads a backend and calls it on its device, checking that it leaves its inputs unchanged."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from attrs import define, field
from torch import Tensor

from ...core import Policy, SampleBatch, Sampler, SamplingTensors, VerifyBatch
from ...core.checks import check_device
from ...core.output import Output
from ...core.tensor_fields import mapped, named_tensors
from ..registry import BACKENDS, Backend, load_sampler
from .findings import Difference, Findings

HOST = torch.device("cpu")


def load_backend(name: str) -> Sampler:
    """A backend's sampler.

    Args:
        name: a registered name, or "package.module:Class", which is called without arguments.

    Raises:
        UnavailableError: it is unknown, or something that it needs is missing.
    """
    if ":" in name:
        return Backend(name, factory=name, summary="").load()
    return load_sampler(name)


def device_for(name: str, wanted: str | None) -> str:
    """The device to run a backend on: the wanted one, else a GPU if there is one and it needs one.

    Raises:
        AcceptorError: the wanted one is neither the CPU nor a CUDA device that is there.
    """
    if wanted is None:
        needs_cuda = name in BACKENDS and BACKENDS[name].needs_cuda
        return "cuda" if needs_cuda and torch.cuda.is_available() else "cpu"
    return str(check_device(wanted, "--device"))


@define
class Watched:
    """Calls a backend with tensors that lie on the host.

    Attributes:
        outputs: the results of all calls except variations, in order.
        findings: changed inputs, and what the callers of this class add.
    """

    backend: Sampler
    device: torch.device = HOST
    outputs: list[Output] = field(factory=list, init=False)
    findings: Findings = field(default=Findings(), init=False)

    def call(
        self,
        batch: VerifyBatch | SampleBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        is_variation: bool = False,
    ) -> Output:
        """Verify a batch under the policy or, if it has one row per request, draw from it.

        A variation of an earlier call runs on dirty memory, and its output is not kept.
        """
        batch, params = there = moved((batch, params), self.device)
        before = [memory.clone() for _, memory in named_memory(there)]
        with dirty_memory() if is_variation else nullcontext():
            if isinstance(batch, VerifyBatch):
                output: Output = self.backend.verify(batch, params, policy)
            else:
                output = self.backend.sample(batch, params)
        self._note_changes(before, named_memory(there))
        for name, memory in named_memory(output):
            if memory.device.type != self.device.type:
                self.note(f"device of {name}", str(self.device), str(memory.device))
        output = moved(output)
        if not is_variation:
            self.outputs.append(output)
        return output

    def _note_changes(self, before: list[Tensor], after: list[tuple[str, Tensor]]) -> None:
        # Compared as bytes, because NaN does not equal itself; read at once, as each read waits.
        same = [
            (new[: len(old)] == old[: len(new)]).all() & (len(new) == len(old))
            for (_, new), old in zip(after, before, strict=True)
        ]
        for (name, _), is_same in zip(after, torch.stack(same).tolist(), strict=True):
            if not is_same:
                self.note(f"input {name}", "untouched", "modified")

    def note(self, what: str, expected: str, got: str) -> None:
        """Add a difference that concerns a whole call."""
        self.findings += Findings(differences=(Difference(-1, -1, what, expected, got),))


def moved(value: Any, device: torch.device = HOST) -> Any:
    """Move a value's tensors to a device, with the gaps between their rows."""

    def there(tensor: Tensor) -> Tensor:
        if device.type == tensor.device.type:
            return tensor
        memory = _memory_of(tensor).to(device, non_blocking=device != HOST)
        return torch.empty(0, dtype=tensor.dtype, device=device).set_(
            memory.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )

    return mapped(value, there)


def named_memory(value: object) -> list[tuple[str, Tensor]]:
    """The bytes of each tensor of a value by its path, gaps between rows included."""
    return [(name, _memory_of(tensor)) for name, tensor in named_tensors(value)]


def _memory_of(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


@contextmanager
def dirty_memory() -> Iterator[None]:
    """Within it, every fresh tensor is filled with NaN, True or the largest integer.

    So unwritten memory shows. PyTorch fills it when deterministic algorithms are required.
    """
    before = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
