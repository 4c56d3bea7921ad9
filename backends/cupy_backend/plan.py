"""What is the same for all batches that look alike: later calls only enter addresses.

A plan is made from an ordinary `Job` and packs what that would pack. This module refuses to keep
any tensor of a batch, or to launch anything.
"""

import weakref
from array import array
from collections.abc import Hashable
from typing import Any

from attrs import field, frozen
from torch import Tensor

from ...core.batch import VerifyBatch
from ...core.output import VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .arguments import Job
from .device import Device, Kernel
from .params import FIELDS, pack
from .shape import Grid, LaunchShape
from .workspace import Workspace

_PLACES = {name: place for place, name in enumerate(FIELDS)}
_MOST_PLANS = 64


def words_of(packed: bytes | bytearray) -> "array[int]":
    """A packed argument as words, and behind it a place for its address."""
    words = array("q", packed)
    words.append(0)
    return words


def launches_of(device: Device, shape: LaunchShape, job: Job) -> list[tuple[Kernel, Grid]]:
    """The kernels of a job, ready to launch one behind the other, and their CTAs."""
    names = shape.launches(job.extent, job.variant.pieces)
    return [(device.verification(name, job.variant), grid) for name, grid in names]


@frozen(eq=False)
class Plan:
    """What is launched, but for addresses.

    Attributes:
        job: of the batch that it was made from; its addresses are that batch's.
        shape: how it is spread.
        template: the argument as words_of makes it.
        areas: where areas of the workspace begin, by their place in the argument.
        announced: the same of areas among its control words.
    """

    job: Job
    shape: LaunchShape
    template: "array[int]"
    areas: tuple[tuple[int, int], ...]
    announced: tuple[tuple[int, int], ...]
    # The latest workspace, and the template with its addresses.
    _latest: list[tuple["weakref.ref[Workspace]", "array[int]"]] = field(factory=list, init=False)
    _launches: list[tuple[Kernel, Grid]] = field(factory=list, init=False)

    @classmethod
    def of(cls, job: Job, shape: LaunchShape) -> "Plan":
        """The plan of a job; its outputs and workspace are entered later."""
        begin, areas = 0, []
        for name, num_bytes in job.extent.areas:
            areas.append((_PLACES[name], begin))
            begin += num_bytes
        fields = {**job.fields, **shape.fields(job.extent)}
        template = words_of(pack(fields, job.numbers, job.rates))
        announced = tuple((_PLACES[name], begin) for name, begin in job.extent.announced)
        return cls(job, shape, template, tuple(areas), announced)

    def argument(
        self, batch: VerifyBatch, draft_map: Tensor | None, out: VerifyOutput, workspace: Workspace
    ) -> "array[int]":
        """The argument of a launch for a batch that looks like the plan's, as words_of makes it."""
        words = self._template_in(workspace)[:]
        words[_TARGET] = batch.target_logits.data_ptr()
        words[_DRAFTS] = batch.draft_token_ids.data_ptr()
        words[_POSITIONS] = batch.positions.data_ptr()
        words[_STARTS] = batch.cu_num_logits.data_ptr()
        if batch.slot_ids is not None:
            words[_SLOTS] = batch.slot_ids.data_ptr()
        if self.job.variant.draft is not None:
            if batch.draft_logits is not None:
                words[_DRAFT] = batch.draft_logits.data_ptr()
            if draft_map is not None:
                words[_DRAFT_MAP] = draft_map.data_ptr()
        words[_TOKEN_IDS] = out.token_ids.data_ptr()
        words[_NUM_ACCEPTED] = out.num_accepted.data_ptr()
        words[_STATUS] = out.status.data_ptr()
        caused = out.total_variation
        words[_VARIATION] = 0 if caused is None else caused.data_ptr()
        return words

    def launches(self, device: Device) -> list[tuple[Kernel, Grid]]:
        """Kernels and their CTAs; all batches that look like the plan's are on one device."""
        if not self._launches:
            self._launches[:] = launches_of(device, self.shape, self.job)
        return self._launches

    def fits(self, workspace: Workspace) -> bool:
        """Whether a workspace is the latest one, which is known to be large enough."""
        return bool(self._latest) and self._latest[0][0]() is workspace

    def _template_in(self, workspace: Workspace) -> "array[int]":
        if not self.fits(workspace):
            words = self.template[:]
            control = words[_PLACES["control"]] = workspace.control.data_ptr()
            for place, begin in self.announced:
                words[place] = control + begin
            scratch = workspace.scratch.data_ptr()
            for place, begin in self.areas:
                words[place] = scratch + begin
            self._latest[:] = [(weakref.ref(workspace), words)]
        return self._latest[0][1]


_TARGET, _DRAFTS, _POSITIONS, _STARTS, _SLOTS, _DRAFT, _DRAFT_MAP = (
    FIELDS.index(name)
    for name in (
        "target_logits", "draft_ids", "positions", "row_starts", "slots", "draft_logits",
        "draft_map",
    )
)  # fmt: skip
_TOKEN_IDS, _NUM_ACCEPTED, _STATUS, _VARIATION = (
    FIELDS.index(name) for name in ("token_ids", "num_accepted", "status", "variation")
)


def _look(tensor: Tensor | None) -> Hashable:
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype)


def _looks_of(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Hashable:
    return (
        id(params),
        policy,
        batch.target_logits.device,
        _look(batch.target_logits),
        _look(batch.draft_token_ids),
        _look(batch.draft_logits),
        _look(batch.positions),
        _look(batch.cu_num_logits),
        _look(batch.slot_ids),
        batch.draft_to_target is None,
    )


@frozen(eq=False)
class Plans:
    """The plans of the latest batches. Parameters are recognised as objects, and batches, too."""

    _known: dict[Hashable, tuple[Any, Plan]] = field(factory=dict, init=False)
    _seen: dict[int, tuple[Any, Any, Policy, Plan]] = field(factory=dict, init=False)

    def find(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Plan | None:
        """The plan of batches like this one."""
        seen = self._seen.get(id(batch))
        if seen is not None and seen[2] is policy and seen[0]() is batch and seen[1]() is params:
            return seen[3]
        known = self._known.get(_looks_of(batch, params, policy))
        if known is None or known[0]() is not params:
            return None
        if len(self._seen) >= _MOST_PLANS:
            self._seen.clear()
        self._seen[id(batch)] = (weakref.ref(batch), known[0], policy, known[1])
        return known[1]

    def keep(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, plan: Plan) -> None:
        """Find the plan again, unless the job holds copies, or addresses that are not entered."""
        copies = [tensor for tensor in plan.job.keep if tensor.data_ptr() not in _maps_of(plan.job)]
        if copies or params.penalties is not None or params.num_logprobs is not None:
            return
        if len(self._known) >= _MOST_PLANS:
            self._known.clear()
        self._known[_looks_of(batch, params, policy)] = (weakref.ref(params), plan)


def _maps_of(job: Job) -> tuple[int, ...]:
    return tuple(job.fields.get(name, 0) for name in ("draft_map", "target_map"))
