"""A sampler that works in memory of its own.

Some samplers want a workspace whose front is zero, and leave it so. Who lets them make one fills it
in every call; who keeps one does not, but cleans up behind a call that broke off between kernels.
This module refuses to share it: all calls are of one stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, runtime_checkable

import torch
from attrs import define, field
from torch import Tensor

from ..core.batch import SampleBatch, VerifyBatch
from ..core.output import SampleOutput, VerifyOutput
from ..core.policies import Policy
from ..core.ports import Sampler
from ..core.sampling_tensors import SamplingTensors


@runtime_checkable
class WorkspaceSampler(Protocol):
    """A `Sampler` whose callers may bring a workspace: float32, zero at first."""

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        workspace: Tensor | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        ...

    def sample(
        self, batch: SampleBatch, params: SamplingTensors, *, workspace: Tensor | None = None
    ) -> SampleOutput:
        """See `Sampler.sample`."""
        ...

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """How many numbers `verify` needs."""
        ...

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """How many numbers `sample` needs."""
        ...


@define(eq=False)
class OwnWorkspace:
    """A `Sampler`.

    Attributes:
        sampler: what works.
    """

    sampler: WorkspaceSampler
    # The last is the largest; graphs may have been captured with those before.
    _workspaces: list[Tensor] = field(factory=list, init=False)

    @classmethod
    def of(cls, sampler: Sampler) -> Sampler:
        """The sampler itself, if it wants no workspace."""
        return cls(sampler) if isinstance(sampler, WorkspaceSampler) else sampler

    def verify(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> VerifyOutput:
        """See `Sampler.verify`."""
        size = self.sampler.verify_workspace_size(batch, params, policy)
        with self._workspace(size, batch.target_logits.device) as workspace:
            return self.sampler.verify(batch, params, policy, workspace=workspace)

    def sample(self, batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
        """See `Sampler.sample`."""
        size = self.sampler.sample_workspace_size(batch, params)
        with self._workspace(size, batch.logits.device) as workspace:
            return self.sampler.sample(batch, params, workspace=workspace)

    @contextmanager
    def _workspace(self, size: int, device: torch.device) -> Iterator[Tensor]:
        if not self._workspaces or len(self._workspaces[-1]) < size:
            self._workspaces.append(torch.zeros(size, device=device))
        try:
            yield self._workspaces[-1]
        except BaseException:
            # Kernels that were launched have left counts there, by which later calls would write
            # behind their memory. An error of the device would hide the one that broke it off.
            with suppress(RuntimeError):
                self._workspaces[-1].zero_()
            raise
