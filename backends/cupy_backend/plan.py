"""Plans that all calls of the same kind share: later calls only enter addresses."""

import weakref
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from attrs import field, fields, frozen
from torch import Tensor

from ...core import Policy, SampleBatch, SamplingTensors, TokenCounts, VerifyBatch
from ...core.call_memory import check_params, check_policy, check_workspace
from ...core.output import SampleOutput, VerifyOutput
from .arguments import job_of
from .device import Device, Kernel
from .job import Grid, Job
from .layout import Extent
from .params import PLACES

_MOST_PLANS = 64


@frozen(eq=False)
class Plan:
    """The launches of a kind of call, except for the addresses.

    Attributes:
        device: the device that they run on.
        extent: the sizes of the batch.
        launches: the kernels in order, and their CTAs.
        template: the kernels' argument, see `Job.words`.
        outputs: outputs that were given to calls and found to fit.
    """

    device: Device
    extent: Extent
    launches: tuple[tuple[Kernel, Grid], ...]
    template: "array[int]"
    outputs: "WeakSet[Any]" = field(factory=WeakSet, init=False)
    _latest: list[Any] = field(factory=lambda: [None, None], init=False)

    @classmethod
    def of(cls, device: Device, job: Job) -> "Plan":
        """Plan a job, and compile its kernels if they do not exist."""
        # CTAs that count the same row add up their counts, so more than one per multiprocessor cost
        # more than they save, unless a closer look follows, which costs more than adding up.
        few = job.extent.filtered and not job.leaves_open
        room = device.kernel(job.reader, job.variant).room
        job.cut(device.num_multiprocessors if few else room)
        launches = tuple((device.kernel(name, job.variant), grid) for name, grid in job.launches())
        return cls(device, job.extent, launches, job.words())

    def words_in(self, workspace: Tensor) -> "array[int]":
        """A copy of the template with the addresses of a workspace, which is checked if new."""
        latest, words = self._latest
        if latest is None or latest() is not workspace:
            where = torch.device("cuda", self.device.index)
            check_workspace(workspace, self.extent.num_bytes, where)
            words = self.template[:]
            areas = self.extent.areas(workspace.data_ptr(), workspace.numel())
            for name, address in areas.items():
                words[PLACES[name]] = address
            self._latest[:] = weakref.ref(workspace), words
        copy: array[int] = words[:]
        return copy


@frozen(eq=False)
class Plans:
    """The plans of all kinds of calls. A batch object that was seen is recognised at once."""

    _known: WeakKeyDictionary[object, dict[Hashable, Plan]] = field(
        factory=WeakKeyDictionary, init=False
    )
    _seen: WeakKeyDictionary[object, tuple[Any, Policy | None, Plan]] = field(
        factory=WeakKeyDictionary, init=False
    )

    def of(
        self,
        batch: VerifyBatch | SampleBatch,
        params: SamplingTensors,
        policy: Policy | None,
        device_of: Callable[[VerifyBatch | SampleBatch], Device],
    ) -> Plan:
        """The plan for this kind of call, made if it is new."""
        seen = self._seen.get(batch)
        if seen is not None and seen[0]() is params and seen[1] is policy:
            return seen[2]
        check_params(params)
        if isinstance(batch, VerifyBatch):
            check_policy(policy)
        # Parameters by slot are new objects in every step.
        known = self._known.setdefault(self if params.slot_ids is not None else params, {})
        look = look_of(batch, params, policy)
        plan = known.get(look)
        if plan is None:
            if len(known) >= _MOST_PLANS:
                known.clear()
            job = job_of(batch, params, policy)
            plan = known[look] = Plan.of(device_of(batch), job)
        self._seen[batch] = weakref.ref(params), policy, plan
        return plan


@cache
def _values_of(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*(part.name for part in fields(kind)))


@cache
def _entered(kind: Any) -> Sequence[str]:
    return [part.name for part in fields(kind) if part.name in PLACES]


def look_of(
    batch: VerifyBatch | SampleBatch, params: SamplingTensors, policy: Policy | None
) -> Hashable:
    """A key, equal for calls that one plan serves; `policy` is None for a draw.

    Parameters are recognised as objects, except those by slot, which are made anew in every step.
    """
    kind: Any = type(batch)
    device = batch.positions.device
    own = () if params.slot_ids is None else _params_look(params)
    return kind, policy, device, own, tuple(map(_look, _values_of(kind)(batch)))


def _look(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype
    return type(value) if isinstance(value, TokenCounts) else value


def _params_look(params: SamplingTensors) -> tuple[Hashable, ...]:
    parts: tuple[Any, ...] = params.target, params.draft, params.penalties, params.bias
    kinds: list[Any] = [type(part) for part in parts]
    values = [v for k, part in zip(kinds, parts, strict=True) if part for v in _values_of(k)(part)]
    own = params.seeds, params.logprobs_processed, params.num_logprobs
    return _look(params.slot_ids), *map(_place, (*own, *values))


def _place(value: Any) -> Hashable:
    return (value.data_ptr(), value.shape) if isinstance(value, Tensor) else value


def enter_addresses(
    words: "array[int]",
    batch: VerifyBatch | SampleBatch,
    params: SamplingTensors,
    id_map: Tensor | None,
    out: VerifyOutput | SampleOutput,
) -> None:
    """Enter the addresses of a call; `id_map` maps the target's ids to the draft's."""
    for owner in (batch, out, out.logprobs):
        _enter(words, owner)
    if words[PLACES["repetition"]]:
        _enter(words, batch.token_counts)
    others = {"entries": params.slot_ids, "draft_map": id_map}
    if isinstance(batch, SampleBatch):
        others = {**others, "target_logits": batch.logits, "draft_map": None, "target_map": id_map}
    for name, tensor in others.items():
        if tensor is not None:
            words[PLACES[name]] = tensor.data_ptr()


def _enter(words: "array[int]", owner: Any) -> None:
    kind: Any = type(owner)
    for name in () if owner is None else _entered(kind):
        value = getattr(owner, name)
        if isinstance(value, Tensor):
            words[PLACES[name]] = value.data_ptr()
