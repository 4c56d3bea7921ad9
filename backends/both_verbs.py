"""Implements both verbs of a sampler, verify and sample, as one kind of call."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from ..core import Policy, SampleBatch, SampleOutput, SamplingTensors, VerifyBatch, VerifyOutput
from ..core import call_memory as memory
from ..core.checks import check_kind

Output = TypeVar("Output", VerifyOutput, SampleOutput)


class Verb(NamedTuple):
    """A call's name, and how its output is made and checked from the call's arguments."""

    name: str
    empty_output: Callable[..., Any]
    check_output: Callable[..., None]


VERIFY = Verb("verify", memory.empty_verify_output, memory.check_verify_output)
SAMPLE = Verb("sample", memory.empty_sample_output, memory.check_sample_output)


class BothVerbs(ABC):
    """A `Sampler`; a draw is a verification without a draft and without a policy."""

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
        check_kind("batch", batch, VerifyBatch)
        return self._run(VERIFY, (batch, params, policy), out, workspace)

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`."""
        check_kind("batch", batch, SampleBatch)
        return self._run(SAMPLE, (batch, params), out, workspace)

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """See `Sampler.verify_workspace_size`."""
        return self._num_bytes(batch, params, policy)

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """See `Sampler.sample_workspace_size`."""
        return self._num_bytes(batch, params)

    @abstractmethod
    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        """Run a call; `given` is a batch, parameters and, for verify, a policy."""

    @abstractmethod
    def _num_bytes(self, batch: Any, params: SamplingTensors, policy: Policy | None = None) -> int:
        """The workspace size of a call."""
