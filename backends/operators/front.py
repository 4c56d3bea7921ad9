"""Operators for a compiled step, bound to a backend, a policy and the requests' parameters.

Bind them outside the compiled function, when requests enter or leave, and call them inside. They
take tensors instead of batches, because the compiler cannot trace attrs classes.
"""

from typing import NamedTuple

from attrs import frozen
from torch import Tensor

from ...core import Policy, SamplingTensors, Stream
from ...core.policies.parameters import derived
from . import registration
from .registration import described


class LogprobTensors(NamedTuple):
    """The fields of `Logprobs`."""

    emitted: Tensor
    top_token_ids: Tensor
    top: Tensor


class VerifyTensors(NamedTuple):
    """The fields of `VerifyOutput`."""

    token_ids: Tensor
    num_accepted: Tensor
    status: Tensor
    logprobs: LogprobTensors | None
    total_variation: Tensor | None


class SampleTensors(NamedTuple):
    """The fields of `SampleOutput`."""

    token_ids: Tensor
    status: Tensor
    logprobs: LogprobTensors | None


@frozen(eq=False)
class VerifyOperator:
    """`Sampler.verify` of one backend, under one policy, for the requests of one batch.

    Attributes:
        backend: a name in the registry.
        policy: an attrs class that can be imported.
        params: those of the requests, in the batch's order.

    Raises:
        InvalidInputError: the policy has fields that text cannot hold.
    """

    backend: str
    policy: Policy
    params: SamplingTensors
    _bound: tuple[str, list[Tensor]] = derived(described)

    def __call__(
        self,
        *,
        target_logits: Tensor,
        cu_num_logits: Tensor,
        draft_token_ids: Tensor,
        positions: Tensor,
        draft_logits: Tensor | None = None,
        slot_ids: Tensor | None = None,
        draft_to_target: Tensor | None = None,
        prompt_mask: Tensor | None = None,
        output_counts: Tensor | None = None,
        allowed_tokens: Tensor | None = None,
        allowed_rows: Tensor | None = None,
    ) -> VerifyTensors:
        """Verify; arguments are as in `VerifyBatch`, but token counts are two tensors."""
        given = [target_logits, cu_num_logits, draft_token_ids, positions, draft_logits, slot_ids]
        given += [draft_to_target, prompt_mask, output_counts, allowed_tokens, allowed_rows]
        results = registration.verify(*self._bound, given)
        token_ids, num_accepted, status, *rest = results
        logprobs = None
        if self.params.num_logprobs is not None:
            logprobs = LogprobTensors(*rest[:3])
            rest = rest[3:]
        return VerifyTensors(
            token_ids, num_accepted, status, logprobs, rest[0] if len(rest) else None
        )


@frozen(eq=False, kw_only=True)
class SampleOperator:
    """`Sampler.sample` of one backend for the requests of one batch.

    Other fields are as in `SampleBatch`.

    Attributes:
        backend: a name in the registry.
        params: those of the requests, in the batch's order.
    """

    backend: str
    params: SamplingTensors
    draft_index: int | None = None
    draft_stream: Stream = Stream.DRAFT
    target_vocab_size: int | None = None
    _bound: tuple[str, list[Tensor]] = derived(described)

    def __call__(
        self,
        *,
        logits: Tensor,
        positions: Tensor,
        slot_ids: Tensor | None = None,
        draft_to_target: Tensor | None = None,
        prompt_mask: Tensor | None = None,
        output_counts: Tensor | None = None,
        allowed_tokens: Tensor | None = None,
        allowed_rows: Tensor | None = None,
    ) -> SampleTensors:
        """Draw; arguments are as in `SampleBatch`, but token counts are two tensors."""
        given = [logits, positions, slot_ids, draft_to_target, prompt_mask, output_counts]
        given += [allowed_tokens, allowed_rows]
        token_ids, status, *rest = registration.sample(*self._bound, given)
        return SampleTensors(token_ids, status, LogprobTensors(*rest) if len(rest) else None)
