"""The Triton sampler: from batches to kernels and back.

It refuses to wait for the device or to look at a value.
"""

from functools import partial

from attrs import evolve
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import (
    check_sample_output,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from ..inverse_maps import InverseMaps
from .call_arguments import sample_arguments, verify_arguments
from .call_tensors import (
    look_at_output,
    look_at_params,
    look_at_sample_batch,
    look_at_verify_batch,
    own_output,
)
from .known_calls import KnownCalls
from .launch import Launcher, start
from .overlap import OVERLAP, can_overlap
from .plan import Plan, plan_sample, plan_verify, sampled_vocab_size
from .reachable import check_reachable
from .replay import addresses_of
from .side_by_side import side_by_side


class TritonSampler:
    """A `Sampler` for CUDA tensors.

    Args:
        launch: starts a kernel; something else than `start` only compiles it, or counts launches.
        overlap: let the programs of a stage start before the stage before it ends, on devices that
            can. Results are the same.
    """

    def __init__(self, launch: Launcher = start, *, overlap: bool = OVERLAP) -> None:
        self._overlap = overlap
        self._runs_kernels = launch is start
        self._known = KnownCalls(launch)
        self._inverses = InverseMaps()

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
        batch, own = side_by_side(batch), out is None
        if out is None:
            out = empty_verify_output(batch, params, policy)
        parts = (
            self._known.part(batch, look_at_verify_batch),
            self._known.part(params, look_at_params),
            own_output(out) if own else self._known.part(out, look_at_output),
        )
        known = self._known.find(policy, parts, workspace)
        if known is None:
            check_verify_fits(batch, params)
            self._check_reachable("target_logits", batch.target_logits)
            plan = self._overlapping(plan_verify(batch, params, policy))
            if not own:
                check_verify_output(out, batch, params, policy)
            if workspace is not None:
                check_workspace(workspace, plan.layout.num_bytes, batch.target_logits.device)
        else:
            plan = known.plan
        scratch = plan.layout.ready(workspace, batch.target_logits.device)
        id_map = batch.draft_to_target if plan.reads_draft else None
        inverse_map = self._inverses.of(id_map, batch.vocab_size)
        if known is None or not known.launch(addresses_of(parts, inverse_map, scratch)):
            build = partial(verify_arguments, plan, batch, params)
            self._known.launch(policy, parts, workspace, plan, build, inverse_map, scratch)
        if out.total_variation is not None and not plan.is_lossy:
            # All requests are greedy: nothing was moved.
            out.total_variation.zero_()
        return out

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`."""
        batch, own = side_by_side(batch), out is None
        if out is None:
            out = empty_sample_output(batch, params)
        parts = (
            self._known.part(batch, look_at_sample_batch),
            self._known.part(params, look_at_params),
            own_output(out) if own else self._known.part(out, look_at_output),
        )
        known = self._known.find(None, parts, workspace)
        if known is None:
            check_sample_fits(batch, params)
            self._check_reachable("logits", batch.logits)
            recipe = params.target if batch.draft_index is None else params.draft
            plan = self._overlapping(plan_sample(batch, params, recipe))
            if not own:
                check_sample_output(out, batch, params)
            if workspace is not None:
                check_workspace(workspace, plan.layout.num_bytes, batch.logits.device)
        else:
            plan = known.plan
        scratch = plan.layout.ready(workspace, batch.logits.device)
        inverse_map = self._inverses.of(batch.draft_to_target, sampled_vocab_size(batch))
        if known is None or not known.launch(addresses_of(parts, inverse_map, scratch)):
            build = partial(sample_arguments, plan, batch, params)
            self._known.launch(None, parts, workspace, plan, build, inverse_map, scratch)
        return out

    def _check_reachable(self, name: str, logits: Tensor) -> None:
        if self._runs_kernels:
            check_reachable(name, logits.device)

    def _overlapping(self, plan: Plan) -> Plan:
        return evolve(plan, overlaps=True) if self._overlap and can_overlap() else plan

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """See `Sampler.verify_workspace_size`."""
        return plan_verify(batch, params, policy).layout.num_bytes

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """See `Sampler.sample_workspace_size`."""
        recipe = params.target if batch.draft_index is None else params.draft
        return plan_sample(batch, params, recipe).layout.num_bytes
