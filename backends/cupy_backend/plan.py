"""What is the same for all calls that look alike: later ones only enter addresses."""

import weakref
from array import array
from collections.abc import Hashable
from typing import Any

from attrs import asdict, field, frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .arguments import Grid, Job
from .device import Device, Kernel
from .layout import Extent
from .params import PLACES

_MOST_PLANS = 64


@frozen(eq=False)
class Plan:
    """What is launched, but for addresses of a call.

    Attributes:
        device: where.
        extent: how large the batch is.
        launches: kernels one behind the other, and their CTAs.
        template: the kernels' argument, see `Job.words`.
        num_bytes: of its workspace.
    """

    device: Device
    extent: Extent
    launches: tuple[tuple[Kernel, Grid], ...]
    template: "array[int]"
    num_bytes: int
    _latest: list[Any] = field(factory=lambda: [None, None, None], init=False)

    @classmethod
    def of(cls, device: Device, job: Job) -> "Plan":
        """The plan of a job, whose kernels are compiled if they are not there yet."""
        # CTAs that count the same row add their counts up, so that more than one for each
        # multiprocessor cost more than they read.
        # A closer look costs more than that.
        few = job.extent.filtered and not job.leaves_open
        room = device.kernel(job.reader, job.variant).room
        job.cut(device.num_multiprocessors if few else room)
        launches = tuple((device.kernel(name, job.variant), grid) for name, grid in job.launches())
        return cls(device, job.extent, launches, job.words(), job.extent.num_bytes)

    def words_in(self, workspace: Tensor) -> "array[int]":
        """A copy of the template with the addresses of a workspace."""
        latest, words, _ = self._latest
        if latest is None or latest() is not workspace:
            words = self.template[:]
            areas = self.extent.areas(workspace.data_ptr(), workspace.numel())
            for name, address in areas.items():
                words[PLACES[name]] = address
            self._latest[:2] = weakref.ref(workspace), words
        copy: array[int] = words[:]
        return copy

    def has_worked_in(self, workspace: Tensor) -> bool:
        """Whether the latest call was in this workspace, which therefore fits."""
        latest = self._latest[0]
        return latest is not None and latest() is workspace

    def has_written_to(self, out: object) -> bool:
        """Whether the latest call wrote to this output, which therefore fits; then it did."""
        latest = self._latest[2]
        known = latest is not None and latest() is out
        if not known:
            self._latest[2] = weakref.ref(out)
        return known


def _look(tensor: Tensor | None) -> Hashable:
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype)


def _params_look(params: SamplingTensors) -> Hashable:
    """Parameters are recognised as objects; those by slot are made anew in every step."""
    if params.slot_ids is None:
        return id(params)
    parts = params.target, params.draft, params.penalties, params.bias
    values = [asdict(part, recurse=False).values() for part in parts if part is not None]
    return (
        *(_place(value) for some in values for value in some),
        *(part is None for part in parts),
        *map(_place, (params.seeds, params.logprobs_processed, params.num_logprobs)),
        _look(params.slot_ids),
    )


def _place(value: Any) -> Hashable:
    return (value.data_ptr(), value.shape) if isinstance(value, Tensor) else value


def _shared_look(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> tuple[Hashable, ...]:
    return (
        _params_look(params),
        _look(batch.positions),
        _look(batch.slot_ids),
        batch.draft_to_target is None,
        batch.token_counts is None,
        _look(batch.allowed_tokens),
        _look(batch.allowed_rows),
    )


def verify_look(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Hashable:
    """The same for verifications that one plan serves."""
    logits, drafts = batch.target_logits, batch.draft_token_ids
    rows = _look(drafts), _look(batch.draft_logits), _look(batch.cu_num_logits)
    return policy, logits.device, _look(logits), rows, _shared_look(batch, params)


def sample_look(batch: SampleBatch, params: SamplingTensors) -> Hashable:
    """The same for draws."""
    stream = batch.draft_index, batch.stream, batch.target_vocab_size
    logits = batch.logits
    return logits.device, _look(logits), stream, _shared_look(batch, params)


@frozen(eq=False)
class Plans:
    """The plans of the latest calls. Batches are recognised as objects, too."""

    _known: dict[Hashable, tuple[Any, Plan]] = field(factory=dict, init=False)
    _seen: dict[int, tuple[Any, Any, Policy, Plan]] = field(factory=dict, init=False)

    def seen(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Plan | None:
        """The plan of this very batch."""
        seen = self._seen.get(id(batch))
        if seen is None or seen[2] is not policy:
            return None
        return seen[3] if seen[0]() is batch and seen[1]() is params else None

    def see(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, plan: Plan) -> None:
        """Find it at once the next time."""
        if len(self._seen) >= _MOST_PLANS:
            self._seen.clear()
        self._seen[id(batch)] = (weakref.ref(batch), weakref.ref(params), policy, plan)

    def find(self, look: Hashable, params: SamplingTensors) -> Plan | None:
        """The plan of calls that look like this."""
        known = self._known.get(look)
        if known is None or (params.slot_ids is None and known[0]() is not params):
            return None
        return known[1]

    def keep(self, look: Hashable, params: SamplingTensors, plan: Plan) -> Plan:
        """Find the plan again."""
        if len(self._known) >= _MOST_PLANS:
            self._known.clear()
        self._known[look] = (weakref.ref(params), plan)
        return plan
