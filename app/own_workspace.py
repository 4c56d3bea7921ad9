"""A sampler with a workspace that is kept from call to call, for calls on one stream.

It is zeroed once, and again behind a call that broke off between kernels.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from attrs import define, field
from torch import Tensor

from ..core.batch import SampleBatch, VerifyBatch
from ..core.output import SampleOutput, VerifyOutput
from ..core.policies import Policy
from ..core.ports import Sampler
from ..core.sampling_tensors import SamplingTensors


@define(eq=False)
class OwnWorkspace:
    """A `Sampler`.

    Attributes:
        sampler: what works.
    """

    sampler: Sampler
    # The last is the largest; graphs may have been captured with those before.
    _workspaces: list[Tensor] = field(factory=list, init=False)

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        out: VerifyOutput | None = None,
        workspace: Tensor | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        if workspace is not None:
            return self.sampler.verify(batch, params, policy, out=out, workspace=workspace)
        size = self.sampler.verify_workspace_size(batch, params, policy)
        with self._workspace(size, batch.target_logits.device) as kept:
            return self.sampler.verify(batch, params, policy, out=out, workspace=kept)

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`."""
        if workspace is not None:
            return self.sampler.sample(batch, params, out=out, workspace=workspace)
        size = self.sampler.sample_workspace_size(batch, params)
        with self._workspace(size, batch.logits.device) as kept:
            return self.sampler.sample(batch, params, out=out, workspace=kept)

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """See `Sampler.verify_workspace_size`."""
        return self.sampler.verify_workspace_size(batch, params, policy)

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """See `Sampler.sample_workspace_size`."""
        return self.sampler.sample_workspace_size(batch, params)

    @contextmanager
    def _workspace(self, size: int, device: torch.device) -> Iterator[Tensor]:
        if not self._workspaces or len(self._workspaces[-1]) < size:
            self._workspaces.append(torch.zeros(size, dtype=torch.uint8, device=device))
        try:
            yield self._workspaces[-1]
        except BaseException:
            # Kernels that were launched have left counts there, by which later calls would write
            # behind their memory. An error of the device would hide the one that broke it off.
            with suppress(RuntimeError):
                self._workspaces[-1].zero_()
            raise
