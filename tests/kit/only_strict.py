"""A backend that lacks most policies."""

from typing import Any

from acceptor.backends.reference import ReferenceSampler
from acceptor.core import Policy, SamplingTensors, UnavailableError, VerifyBatch, VerifyOutput


class OnlyStrict(ReferenceSampler):
    """The reference, under strict policies only."""

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        if "strict" not in policy.name:
            raise UnavailableError(f"policy: expected a strict one, got {policy.name}")
        return super().verify(batch, params, policy, **memory)
