"""What is the same for all calls that look alike: later ones only enter addresses."""

import weakref
from array import array
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

from attrs import field, frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import check_params, check_policy
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .calls import look_of
from .device import Device
from .job import Grid, Job
from .kernel import Kernel
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


@frozen(eq=False)
class Plans:
    """The plans of calls. Batches are recognised as objects, too."""

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
        make: Callable[[Any, SamplingTensors, Policy | None], Plan],
    ) -> Plan:
        """The plan of calls that look like this; new ones are made."""
        seen = self._seen.get(batch)
        if seen is not None and seen[0]() is params and seen[1] is policy:
            return seen[2]
        check_params(params)
        if isinstance(batch, VerifyBatch):
            check_policy(policy)
        # Parameters by slot are other objects in every step.
        known = self._known.setdefault(self if params.slot_ids is not None else params, {})
        look = look_of(batch, params, policy)
        plan = known.get(look)
        if plan is None:
            if len(known) >= _MOST_PLANS:
                known.clear()
            plan = known[look] = make(batch, params, policy)
        self._seen[batch] = weakref.ref(params), policy, plan
        return plan
