"""The Triton sampler.

A call that looks like an earlier one launches that one's compiled kernels directly: otherwise
Triton would inspect every argument of every launch, the largest part of an eager call.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from triton.runtime import driver

from ...core import Policy, SamplingTensors
from ...core.call_memory import check_fits, check_params, check_policy, check_workspace
from ..both_verbs import BothVerbs, Output, Verb
from ..inverse_maps import InverseMaps
from . import groups
from .arguments import Call, stage_kernel
from .device import can_overlap, check_reachable, num_processors
from .groups import Part
from .launch import Launch, Launcher, launches, start
from .plan import Plan, plan_of

MOST_KNOWN = 1024
"""How many kinds of calls are kept."""


Launched = list[tuple[Any, Launch]]
"""A call's launches, each with its compiled kernel."""


class TritonSampler(BothVerbs):
    """A `Sampler` for CUDA tensors.

    Args:
        launch: starts a kernel and returns the compiled one; others than `start` may only compile,
            or count launches. If it returns None, the kind of call is not kept.
        overlap: let a stage's programs start before the previous stage ends, on devices that can.
            Results are the same.
    """

    def __init__(self, launch: Launcher = start, *, overlap: bool = True) -> None:
        self._launch = launch
        self._overlap = overlap
        self._parts: dict[Any, WeakKeyDictionary[object, Part]] = defaultdict(WeakKeyDictionary)
        self._known: dict[object, tuple[Plan, Launched]] = {}
        self._inverses = InverseMaps()

    def _num_bytes(self, batch: Any, params: SamplingTensors, policy: Policy | None = None) -> int:
        return plan_of(batch, params, policy).layout.size

    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        batch, params, *rule = given
        if rule:
            check_policy(*rule)
        check_params(params)
        look = groups.params_part if rule or batch.draft_index is None else groups.drafting_part
        parts: list[Part] = [self._part(groups.batch_part, batch), self._part(look, params)]
        if out is None:
            out = verb.empty_output(*given)
            parts.append(groups.output_part(out))
        else:
            parts.append(self._part(groups.output_part, out))
        device = batch.positions.device
        current = driver.active.get_current_device() if device.type == "cuda" else -1
        given_space = None if workspace is None else (workspace.shape, groups.kind_of(workspace))
        kind = (current, *rule, *[part.kind for part in parts], given_space)
        plan, launched = self._known.get(kind) or (
            self._new_plan(verb, given, out, workspace),
            None,
        )
        space = plan.layout.ready(workspace, device)
        id_map = batch.draft_to_target if plan.reads_draft or not rule else None
        inverse = self._inverses.of(id_map, batch.vocab_size)
        if launched is None:
            call = groups.make_call(plan, [part.groups for part in parts], space, inverse)
            self._first(kind, plan, Call.of(call), device)
        else:
            addresses = [part.addresses for part in parts]
            call = groups.make_call(plan, addresses, space.data_ptr(), inverse)
            _replay(launched, call, driver.active.get_current_stream(current))
        return out

    def _part(self, look: Callable[[Any], Part], whole: Any) -> Part:
        """The result of `look` for a part of a call, cached while the part is alive."""
        known = self._parts[look]
        part = known.get(whole)
        if part is None:
            part = known[whole] = look(whole)
        return part

    def _new_plan(
        self, verb: Verb, given: tuple[Any, ...], out: Output, workspace: Tensor | None
    ) -> Plan:
        """Check a call of a new kind, and plan it."""
        batch, params, *rule = given
        check_fits(batch, params)
        verb.check_output(out, *given)
        device = batch.positions.device
        if self._launch is start:
            check_reachable("target_logits" if rule else "logits", device)
        plan = plan_of(*given, overlaps=self._overlap and can_overlap())
        if workspace is not None:
            check_workspace(workspace, plan.layout.size, device)
        return plan

    def _first(self, kind: object, plan: Plan, call: Call, device: Any) -> None:
        """Run a call of a new kind, and remember its launches."""
        launched = []
        for launch in launches(plan, num_processors(device)):
            stage, programs, rest, options = launch
            compiled = self._launch(stage_kernel, (programs, 1, 1), call, rest, stage, **options)
            launched.append((compiled, launch))
        if all(compiled for compiled, _ in launched):
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            self._known[kind] = plan, launched


def _replay(launched: Launched, call: groups.Groups, stream: int) -> None:
    """Launch all kernels on a stream; Triton's launch hooks are not asked."""
    for compiled, (stage, programs, rest, _options) in launched:
        given = compiled.function, compiled.packed_metadata, None, None, None, call, rest, stage
        compiled.run(programs, 1, 1, stream, *given)
