"""The Triton sampler: from batches to kernel arguments and back.

It refuses to wait for the device or to look at a value.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, Status, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .call_arguments import (
    Addresses,
    Arguments,
    Tensors,
    sample_arguments,
    sampled_vocab_size,
    verify_arguments,
)
from .inverse_maps import InverseMaps
from .known_calls import KnownCall, Recorder, replay, sample_kind, verify_kind
from .launch import Launcher, launch_all, start, variant_of
from .plan import Plan, plan_sample, plan_verify
from .workspace import MIN_FRONT


class TritonSampler:
    """A `Sampler` for CUDA tensors.

    Args:
        launch: starts a kernel; something else than `start` only compiles it, or counts launches.
    """

    def __init__(self, launch: Launcher = start) -> None:
        self._launch = launch
        self._inverses = InverseMaps()
        self._known: dict[tuple[object, ...], KnownCall] = {}

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        workspace: Tensor | None = None,
        out: VerifyOutput | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`.

        Args:
            batch: see `Sampler.verify`.
            params: see `Sampler.verify`.
            policy: see `Sampler.verify`.
            workspace: [at least `verify_workspace_size`] float32; allocated when None.
            out: where to write; allocated when None.
        """
        kind = verify_kind(batch, params, policy, workspace, out)
        known = self._known.get(kind)
        if known is None:
            check_verify_fits(batch, params)
            plan = plan_verify(batch, params, policy)
            known = self._remember(kind, plan, Status.TARGET_LOGITS_INVALID, workspace)
        plan = known.plan
        if out is None:
            out = _empty_output(batch, params, policy)
        id_map = batch.draft_to_target if plan.reads_draft else None
        build = partial(
            verify_arguments,
            plan,
            known.variant,
            batch,
            params,
            _zeroed(plan, batch.target_logits, workspace),
            out,
            self._inverses.of(id_map, batch.vocab_size),
        )
        self._launch_known(known, batch.target_logits, build)
        if out.total_variation is not None and not plan.is_lossy:
            # All requests are greedy: nothing was moved.
            out.total_variation.zero_()
        return out

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        workspace: Tensor | None = None,
        out: SampleOutput | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`; `workspace` and `out` are as in `verify`."""
        kind = sample_kind(batch, params, workspace, out)
        known = self._known.get(kind)
        if known is None:
            check_sample_fits(batch, params)
            for_target = batch.draft_index is None
            plan = plan_sample(batch, params, params.target if for_target else params.draft)
            invalid = Status.TARGET_LOGITS_INVALID if for_target else Status.DRAFT_LOGITS_INVALID
            known = self._remember(kind, plan, invalid, workspace)
        if out is None:
            out = _empty_sample(batch, params)
        build = partial(
            sample_arguments,
            known.plan,
            known.variant,
            batch,
            params,
            _zeroed(known.plan, batch.logits, workspace),
            out,
            self._inverses.of(batch.draft_to_target, sampled_vocab_size(batch)),
        )
        self._launch_known(known, batch.logits, build)
        return out

    def _remember(
        self,
        kind: tuple[object, ...],
        plan: Plan,
        invalid: Status,
        workspace: Tensor | None,
    ) -> KnownCall:
        if workspace is not None:
            plan.layout.check(workspace)
        variant = variant_of(plan, invalid, with_logprobs=plan.layout.num_raw_rows > 0)
        known = KnownCall(plan, variant)
        self._known[kind] = known
        return known

    def _launch_known(
        self, known: KnownCall, logits: Tensor, build: Callable[[Tensors | Addresses], Arguments]
    ) -> None:
        addresses = Addresses()
        arguments = build(addresses)
        if known.compiled is not None and addresses.are_aligned:
            launch_all(known.plan, arguments, replay(known.compiled, logits.device.index))
            return
        recorder = Recorder(self._launch)
        launch_all(known.plan, build(Tensors()), recorder)
        if addresses.are_aligned:
            known.compiled = recorder.compiled

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """How many float32 a `verify` of such a batch needs."""
        return plan_verify(batch, params, policy).layout.size

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """How many float32 a `sample` of such a batch needs."""
        recipe = params.target if batch.draft_index is None else params.draft
        return plan_sample(batch, params, recipe).layout.size


def _zeroed(plan: Plan, logits: Tensor, workspace: Tensor | None) -> Tensor:
    if workspace is None:
        return plan.layout.allocate(logits.device)
    if plan.layout.front_size > MIN_FRONT:
        workspace[: plan.layout.front_size].zero_()
    return workspace


def _empty_sample(batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
    device = batch.logits.device
    logprobs = None
    if batch.draft_index is None:
        logprobs = _empty_logprobs((batch.num_reqs, 1), params, device)
    return SampleOutput(
        token_ids=torch.empty(batch.num_reqs, dtype=torch.int64, device=device),
        status=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        logprobs=logprobs,
    )


def _empty_output(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> VerifyOutput:
    device = batch.target_logits.device
    shape = (batch.num_reqs, batch.max_spec_len + 1)
    return VerifyOutput(
        token_ids=torch.empty(shape, dtype=torch.int64, device=device),
        num_accepted=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        status=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        logprobs=_empty_logprobs(shape, params, device),
        total_variation=None
        if policy.lossless or not policy.uses_draft_probs
        else torch.empty(shape, device=device),
    )


def _empty_logprobs(
    shape: tuple[int, int], params: SamplingTensors, device: torch.device
) -> Logprobs | None:
    if params.num_logprobs is None:
        return None
    top_shape = (*shape, params.num_logprobs)
    return Logprobs(
        emitted=torch.empty(shape, device=device),
        top_token_ids=torch.empty(top_shape, dtype=torch.int64, device=device),
        top=torch.empty(top_shape, device=device),
    )
