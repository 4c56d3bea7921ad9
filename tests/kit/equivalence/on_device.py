"""Samplers of a device that are given tensors of the host, and whose answers go there.

Processes that share a GPU take turns at it, so a batch that is built and judged there waits at each
of many hundred operations. Here a call is a copy there, the backend's own work, and a copy back. It
refuses to hide what a backend writes to its inputs: that is written back.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.conformance.moved import on_host, replaced, tensors_of
from acceptor.core import (
    Policy,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.no_workspace import NoWorkspace

ALIGNMENT = 512
"""Bytes: where tensors with memory of their own begin on a GPU."""

BETWEEN = 255
"""Of every byte between two tensors: NaN, -1, True."""

Output = TypeVar("Output")


@frozen
class OnDevice(NoWorkspace):
    """A `Sampler` of host tensors.

    Attributes:
        sampler: of the device's.
        device: where.
    """

    sampler: Sampler
    device: torch.device

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **_: Any
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        return self._answer(
            (batch, params),
            lambda batch, params: self.sampler.verify(batch, params, policy),
        )

    def sample(self, batch: SampleBatch, params: SamplingTensors, **_: Any) -> SampleOutput:
        """See `Sampler.sample`."""
        return self._answer((batch, params), self.sampler.sample)

    def _answer(self, asked: tuple[Any, SamplingTensors], ask: Callable[..., Output]) -> Output:
        memory = Memory.of(tensors_of(asked))
        there = memory.bytes.to(self.device, copy=True)
        before = there.clone()
        output = ask(*replaced(asked, memory.on(there)))
        output, is_changed = on_host((output, (there != before).any()))
        if is_changed:
            memory.write_back(there.cpu())
        return output


@frozen(eq=False)
class Memory:
    """The memory of some tensors of the host, one behind the other.

    Attributes:
        tensors: some may share theirs.
        begins: where it is, in bytes.
        bytes: a copy of all.
    """

    tensors: Sequence[Tensor]
    begins: Sequence[int]
    bytes: Tensor

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Memory":
        """What tensors have, gaps between rows included."""
        begins: dict[int, int] = {}
        end = 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in begins:
                begins[storage.data_ptr()] = end
                end += -(-storage.nbytes() // ALIGNMENT) * ALIGNMENT
        memory = cls(
            tensors,
            [begins[tensor.untyped_storage().data_ptr()] for tensor in tensors],
            torch.full((end,), BETWEEN, dtype=torch.uint8),
        )
        for mine, there in memory._pairs(memory.bytes):
            there.copy_(mine)
        return memory

    def on(self, there: Tensor) -> dict[int, Tensor]:
        """The tensors as they lie in a copy of the bytes, by their ids."""
        return {
            id(tensor): there.view(tensor.dtype).as_strided(
                tensor.shape,
                tensor.stride(),
                begin // tensor.itemsize + tensor.storage_offset(),
            )
            for tensor, begin in zip(self.tensors, self.begins, strict=True)
        }

    def write_back(self, there: Tensor) -> None:
        """Let the tensors have what a copy of the bytes has become."""
        for mine, changed in self._pairs(there):
            mine.copy_(changed)

    def _pairs(self, there: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for tensor, begin in zip(self.tensors, self.begins, strict=True):
            mine = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            yield mine, there[begin : begin + len(mine)]
