"""The Triton sampler: from batches to kernels and back."""

from functools import partial
from typing import Any

from attrs import evolve
from torch import Tensor
from triton.runtime import driver

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import check_fits, check_params, check_policy, check_workspace
from ...core.output import SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from ..both_verbs import BothVerbs, Output, Verb
from ..inverse_maps import InverseMaps
from .device import can_overlap, check_reachable, num_processors
from .groups import (
    address_of,
    batch_groups,
    kind_of,
    make_call,
    output_groups,
    params_groups,
    tensor_itself,
)
from .known_calls import Kind, KnownCalls, Part
from .launch import Launcher, launch_all, start
from .plan import Plan, plan_sample, plan_verify
from .side_by_side import side_by_side

OWN = Kind(("own",))


class TritonSampler(BothVerbs):
    """A `Sampler` for CUDA tensors.

    Args:
        launch: starts a kernel; something else than `start` only compiles it, or counts launches.
        overlap: let the programs of a stage start before the stage before it ends, on devices that
            can. Results are the same.
    """

    def __init__(self, launch: Launcher = start, *, overlap: bool = True) -> None:
        self._overlap = overlap
        self._runs_kernels = launch is start
        self._known = KnownCalls(launch)
        self._inverses = InverseMaps()

    def _num_bytes(self, batch: Any, params: SamplingTensors, policy: Policy | None = None) -> int:
        return _plan_of(batch, params, policy).layout.size

    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        batch, params, *rule = given
        if rule:
            check_policy(*rule)
        check_params(params)
        batch, is_own = side_by_side(batch), out is None
        if out is None:
            out = verb.empty_output(batch, params, *rule)
        parts: tuple[Part, Part, Part] = (
            self._known.part(batch, _look_at_batch),
            self._known.part(params, _look_at_params),
            _own_output(out) if is_own else self._known.part(out, _look_at_output),
        )
        given_space = None if workspace is None else (workspace.shape, kind_of(workspace))
        device = batch.positions.device
        current = driver.active.get_current_device() if device.type == "cuda" else -1
        kind = (current, *rule, *(part.kind for part in parts), given_space)
        known = self._known.find(kind)
        if known is None:
            check_fits(batch, params)
            if not is_own:
                verb.check_output(out, batch, params, *rule)
            plan = _plan_of(batch, params, *rule)
            if workspace is not None:
                check_workspace(workspace, plan.layout.size, device)
            if self._runs_kernels:
                check_reachable("target_logits" if rule else "logits", device)
            overlaps = self._overlap and can_overlap()
            plan = evolve(plan, variant=plan.variant._replace(overlaps=overlaps))
        else:
            plan = known.plan
        scratch = plan.layout.ready(workspace, device)
        inverse = self._inverse_map(plan, batch)
        if known is not None:
            of_batch, of_params, of_out = parts
            space, address = plan.layout.addresses(scratch), address_of(inverse)
            known.replay(
                make_call(plan, of_batch.groups, of_params.groups, of_out.groups, space, address),
                current,
            )
        else:
            call = make_call(
                plan,
                batch_groups(batch, tensor_itself),
                params_groups(params, tensor_itself),
                output_groups(out, tensor_itself),
                plan.layout.scratch(scratch),
                inverse,
            )
            run = partial(launch_all, plan, call, num_processors(device))
            self._known.record(kind, plan, run)
        return out

    def _inverse_map(self, plan: Plan, batch: VerifyBatch | SampleBatch) -> Tensor | None:
        if isinstance(batch, VerifyBatch) and not plan.reads_draft:
            return None
        return self._inverses.of(batch.draft_to_target, batch.vocab_size)


def _plan_of(batch: Any, params: SamplingTensors, policy: Any = None) -> Plan:
    if isinstance(batch, VerifyBatch):
        return plan_verify(batch, params, policy)
    return plan_sample(batch, params)


def _look_at_batch(batch: VerifyBatch | SampleBatch) -> Part:
    # Rows behind those of its requests do not matter.
    facts: tuple[object, ...] = (batch.draft_to_target is None, batch.num_reqs)
    if isinstance(batch, VerifyBatch):
        facts += (batch.draft_token_ids.shape,)
    else:
        facts += (batch.draft_index, batch.draft_stream, batch.target_vocab_size)
    return Part(Kind((*facts, batch_groups(batch, kind_of))), batch_groups(batch, address_of))


def _look_at_params(params: SamplingTensors) -> Part:
    target, draft = params.target, params.draft
    greedy = target.any_greedy, target.all_greedy, draft.any_greedy, draft.all_greedy
    facts = *greedy, params.num_logprobs, params.num_reqs
    return Part(Kind((*facts, params_groups(params, kind_of))), params_groups(params, address_of))


def _own_output(out: VerifyOutput | SampleOutput) -> Part:
    # The other parts say what it is like.
    return Part(OWN, output_groups(out, address_of))


def _look_at_output(out: VerifyOutput | SampleOutput) -> Part:
    return Part(Kind((output_groups(out, kind_of),)), output_groups(out, address_of))
