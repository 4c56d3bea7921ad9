"""What is the same for all batches that look alike: later calls only enter addresses.

A plan is made from an ordinary `Job` and packs what that would pack. This module refuses to keep
any tensor of a batch, or to launch anything.
"""

import struct
import weakref
from collections.abc import Hashable
from typing import Any

from attrs import field, frozen
from torch import Tensor

from ...core.batch import VerifyBatch
from ...core.output import VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .arguments import Job
from .params import FIELDS, pack
from .shape import LaunchShape
from .workspace import Workspace

_enter = struct.Struct("=q").pack_into
_OFFSETS = {name: 8 * place for place, name in enumerate(FIELDS)}
_MOST_PLANS = 64


@frozen(eq=False)
class Plan:
    """One launch, but for addresses.

    Attributes:
        job: of the batch that it was made from; its addresses are that batch's.
        shape: how it is spread.
        template: the packed argument.
        areas: where areas of the workspace begin, by their place in the argument.
    """

    job: Job
    shape: LaunchShape
    template: bytes
    areas: tuple[tuple[int, int], ...]
    # The latest workspace, and the template with its addresses.
    _latest: list[tuple["weakref.ref[Workspace]", bytes]] = field(factory=list, init=False)

    @classmethod
    def of(cls, job: Job, shape: LaunchShape) -> "Plan":
        """The plan of a job; its outputs and workspace are entered later."""
        begin, areas = 0, []
        for name, num_bytes in job.extent.areas:
            areas.append((_OFFSETS[name], begin))
            begin += num_bytes
        fields = {**job.fields, **shape.fields(job.extent)}
        return cls(job, shape, bytes(pack(fields, job.numbers, job.rates)), tuple(areas))

    def argument(
        self, batch: VerifyBatch, draft_map: Tensor | None, out: VerifyOutput, workspace: Workspace
    ) -> bytearray:
        """The argument of a launch for a batch that looks like the plan's."""
        packed = bytearray(self._template_in(workspace))
        words = memoryview(packed).cast("q")
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
        return packed

    def fits(self, workspace: Workspace) -> bool:
        """Whether a workspace is the latest one, which is known to be large enough."""
        return bool(self._latest) and self._latest[0][0]() is workspace

    def _template_in(self, workspace: Workspace) -> bytes:
        if not self.fits(workspace):
            packed = bytearray(self.template)
            _enter(packed, _OFFSETS["control"], workspace.control.data_ptr())
            scratch = workspace.scratch.data_ptr()
            for offset, begin in self.areas:
                _enter(packed, offset, scratch + begin)
            self._latest[:] = [(weakref.ref(workspace), bytes(packed))]
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
    """The plans of the latest batches. Parameters are recognised as objects."""

    _known: dict[Hashable, tuple[Any, Plan]] = field(factory=dict, init=False)

    def find(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Plan | None:
        """The plan of batches like this one."""
        known = self._known.get(_looks_of(batch, params, policy))
        return known[1] if known is not None and known[0]() is params else None

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
