"""The Triton sampler: from batches to kernels and back.

It refuses to wait for the device or to look at a value.
"""

from functools import partial

import torch
from attrs import evolve
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .call_arguments import sample_arguments, verify_arguments
from .call_tensors import sample_kind, sample_tensors, verify_kind, verify_tensors
from .inverse_maps import InverseMaps
from .known_calls import KnownCalls
from .launch import Launcher, start
from .overlap import OVERLAP, can_overlap
from .plan import Plan, plan_sample, plan_verify, sampled_vocab_size
from .replay import addresses_of


class TritonSampler:
    """A `Sampler` for CUDA tensors.

    Args:
        launch: starts a kernel; something else than `start` only compiles it, or counts launches.
        overlap: let the programs of a stage start before the stage before it ends, on devices that
            can. Results are the same.
    """

    def __init__(self, launch: Launcher = start, *, overlap: bool = OVERLAP) -> None:
        self._overlap = overlap
        self._known = KnownCalls(launch)
        self._inverses = InverseMaps()

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
        if out is None:
            out = _empty_output(batch, params, policy)
        tensors = verify_tensors(batch, params, out)
        kind = verify_kind(batch, params, policy, tensors, workspace)
        known = self._known.find(kind)
        if known is None:
            check_verify_fits(batch, params)
            plan = self._overlapping(plan_verify(batch, params, policy))
            plan.layout.check(workspace)
        else:
            plan = known.plan
        scratch = plan.layout.ready(workspace, batch.target_logits.device)
        id_map = batch.draft_to_target if plan.reads_draft else None
        inverse_map = self._inverses.of(id_map, batch.vocab_size)
        if known is None or not known.launch(addresses_of(tensors, inverse_map, scratch)):
            build = partial(verify_arguments, plan, batch, params)
            self._known.launch(kind, plan, build, tensors, inverse_map, scratch)
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
        if out is None:
            out = _empty_sample_output(batch, params)
        tensors = sample_tensors(batch, params, out)
        kind = sample_kind(batch, params, tensors, workspace)
        known = self._known.find(kind)
        if known is None:
            check_sample_fits(batch, params)
            recipe = params.target if batch.draft_index is None else params.draft
            plan = self._overlapping(plan_sample(batch, params, recipe))
            plan.layout.check(workspace)
        else:
            plan = known.plan
        scratch = plan.layout.ready(workspace, batch.logits.device)
        inverse_map = self._inverses.of(batch.draft_to_target, sampled_vocab_size(batch))
        if known is None or not known.launch(addresses_of(tensors, inverse_map, scratch)):
            build = partial(sample_arguments, plan, batch, params)
            self._known.launch(kind, plan, build, tensors, inverse_map, scratch)
        return out

    def _overlapping(self, plan: Plan) -> Plan:
        return evolve(plan, overlaps=True) if self._overlap and can_overlap() else plan

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """How many float32 a `verify` of such a batch needs."""
        return plan_verify(batch, params, policy).layout.size

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """How many float32 a `sample` of such a batch needs."""
        recipe = params.target if batch.draft_index is None else params.draft
        return plan_sample(batch, params, recipe).layout.size


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


def _empty_sample_output(batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
    num_reqs, device = batch.num_reqs, batch.logits.device
    return SampleOutput(
        token_ids=torch.empty(num_reqs, dtype=torch.int64, device=device),
        status=torch.empty(num_reqs, dtype=torch.int32, device=device),
        logprobs=_empty_logprobs((num_reqs, 1), params, device)
        if batch.draft_index is None
        else None,
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
