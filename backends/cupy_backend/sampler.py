"""The CuPy sampler: a launch or two of CUDA C++ on torch's current stream.

It never waits for the device, except to compile a kernel that was never needed before. It refuses
tensors that are not on a CUDA device.
"""

from array import array

import torch
from attrs import field, frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import (
    check_sample_output,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from ...core.errors import InvalidInputError
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from ..inverse_maps import InverseMaps
from .arguments import Job, place, sample_job, verify_job
from .cache import CompiledKernels, user_cache_directory
from .device import Device, Kernel
from .logprobs import LogprobsLaunch, logprobs_variant
from .masks import refuse_masks
from .params import pack
from .plan import Plan, Plans, launches_of, words_of
from .shape import Grid, LaunchShape
from .workspace import Extent, Workspace


def _default_cache() -> CompiledKernels:
    return CompiledKernels(user_cache_directory())


@frozen(eq=False)
class CupySampler:
    """A `Sampler` for CUDA tensors.

    Attributes:
        compiled: where compiled kernels are kept.
    """

    compiled: CompiledKernels = field(factory=_default_cache)
    _devices: dict[int, Device] = field(factory=dict, init=False)
    _workspaces: dict[tuple[int, int], Workspace] = field(factory=dict, init=False)
    # CUDA graphs may still work in them.
    _outgrown: list[Workspace] = field(factory=list, init=False)
    _plans: Plans = field(factory=Plans, init=False)
    _inverses: InverseMaps = field(factory=InverseMaps, init=False)

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        out: VerifyOutput | None = None,
        workspace: Tensor | None = None,
        shape: LaunchShape | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`.

        Args:
            batch: on a CUDA device.
            params: on the same device.
            policy: one of the core's.
            out: where to write; by default it is allocated.
            workspace: where to work; by default one per device and stream that this sampler keeps.
            shape: how to cut the launch; by default by the batch's size.
        """
        refuse_masks(batch)
        plan = self._plans.find(batch, params, policy) if shape is None else None
        if plan is None:
            check_verify_fits(batch, params)  # or it was checked when the plan was made
        device = self._device(batch.target_logits)
        draft_map = None
        if batch.draft_to_target is not None:
            draft_map = self._inverses.of(batch.draft_to_target, batch.vocab_size)
        if out is None:
            out = empty_verify_output(batch, params, policy)
        else:
            check_verify_output(out, batch, params, policy)
        if plan is None:
            job = verify_job(batch, params, policy, draft_map)
            plan = Plan.of(job, shape or self._shape(device, job))
            if shape is None:
                self._plans.keep(batch, params, policy, plan)
        self._start(device, plan, batch, draft_map, out, workspace)
        if out.logprobs is None:
            return out
        plan.job.fields["token_ids"] = out.token_ids.data_ptr()
        self._logprobs(device, plan.job, params, out.logprobs)
        return out

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
        shape: LaunchShape | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`; the other arguments as in `verify`."""
        refuse_masks(batch)
        check_sample_fits(batch, params)
        device = self._device(batch.logits)
        target_map = self._inverses.of(batch.draft_to_target, batch.target_vocab_size or 0)
        job = sample_job(batch, params, target_map)
        if out is None:
            out = empty_sample_output(batch, params)
        else:
            check_sample_output(out, batch, params)
        job.fields["token_ids"] = out.token_ids.data_ptr()
        job.fields["status"] = out.status.data_ptr()
        self._launch(device, job, workspace, shape)
        if out.logprobs is not None:
            self._logprobs(device, job, params, out.logprobs)
        return out

    def verify_workspace_size(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,  # noqa: ARG002, the port's signature
        policy: Policy,  # noqa: ARG002
    ) -> int:
        """See `Sampler.verify_workspace_size`."""
        return self.workspace_extent(batch).num_bytes

    def sample_workspace_size(
        self,
        batch: SampleBatch,
        params: SamplingTensors,  # noqa: ARG002, the port's signature
    ) -> int:
        """See `Sampler.sample_workspace_size`."""
        num_reqs, vocab_size = batch.logits.shape
        if batch.draft_to_target is not None and batch.target_vocab_size is not None:
            vocab_size = batch.target_vocab_size
        return Extent(num_reqs, 0, num_reqs, vocab_size).num_bytes

    def workspace_extent(self, batch: VerifyBatch) -> Extent:
        """How large a batch is for the workspace."""
        return Extent(
            num_reqs=batch.num_reqs,
            max_spec_len=batch.max_spec_len,
            num_logits=max(batch.target_logits.shape[0], batch.num_reqs),
            vocab_size=batch.vocab_size,
            draft_vocab_size=0 if batch.draft_logits is None else batch.draft_logits.shape[-1],
        )

    def _device(self, logits: Tensor) -> Device:
        if logits.device.type != "cuda":
            raise InvalidInputError(f"logits: expected a cuda device, got {logits.device}")
        index = logits.device.index
        known = self._devices.get(index)
        if known is None:
            known = self._devices[index] = Device.open(index, self.compiled)
        return known

    def _launch(
        self, device: Device, job: Job, workspace: Tensor | None, shape: LaunchShape | None
    ) -> None:
        if job.extent.num_reqs == 0:
            return
        stream = _current_stream(device.index)
        shape = shape or self._shape(device, job)
        if workspace is None:
            room = self._workspace(device, stream, job.extent)
        else:
            room = _room_in(workspace, job.extent, device)
        fields = job.fields
        place(fields, job.extent, room)
        fields.update(shape.fields(job.extent))
        packed = pack(fields, job.numbers, job.rates)
        launches = launches_of(device, shape, job)
        self._enqueue(launches, device.index, stream, words_of(packed))

    def _start(
        self,
        device: Device,
        plan: Plan,
        batch: VerifyBatch,
        draft_map: Tensor | None,
        out: VerifyOutput,
        workspace: Tensor | None,
    ) -> None:
        if batch.num_reqs == 0:
            return
        stream = _current_stream(device.index)
        if workspace is None:
            room = self._workspaces.get((device.index, stream))
            if room is None or not plan.fits(room):
                room = self._workspace(device, stream, plan.job.extent)
        else:
            room = _room_in(workspace, plan.job.extent, device)
        words = plan.argument(batch, draft_map, out, room)
        self._enqueue(plan.launches(device), device.index, stream, words)

    def _shape(self, device: Device, job: Job) -> LaunchShape:
        if job.extent.num_reqs == 0:
            return LaunchShape(group=0, num_ctas=0)
        variant = job.variant
        if not variant.has_wide:
            return self._narrow(device, job)
        room = device.verification("wide", variant).room
        by_pieces = variant.by_pieces
        if not device.overlaps or not job.has_whole_vectors:
            by_pieces = None
        shape = LaunchShape.choose(
            job.extent, room, variant.by_rows, by_pieces, relief=variant.relief
        )
        return shape if shape.group else self._narrow(device, job)

    def _narrow(self, device: Device, job: Job) -> LaunchShape:
        return LaunchShape.narrow(job.extent, device.verification("narrow", job.variant).room)

    def _logprobs(
        self, device: Device, job: Job, params: SamplingTensors, into: Logprobs | None
    ) -> None:
        kernel = device.verification("logprobs", logprobs_variant(job))
        where = torch.device("cuda", device.index)
        assert params.num_logprobs is not None
        launch = LogprobsLaunch.prepare(job, params, params.num_logprobs, kernel.room, where, into)
        if launch.num_ctas > 0:
            stream = _current_stream(device.index)
            launches = [(kernel, (launch.num_ctas, 1, 1))]
            self._enqueue(launches, device.index, stream, words_of(launch.packed))

    def _workspace(self, device: Device, stream: int, extent: Extent) -> Workspace:
        known = self._workspaces.get((device.index, stream))
        if known is None or not known.holds(extent):
            if known is not None:
                self._outgrown.append(known)
            known = Workspace.for_extent(extent, torch.device("cuda", device.index))
            self._workspaces[device.index, stream] = known
        return known

    def _enqueue(
        self, launches: list[tuple[Kernel, Grid]], index: int, stream: int, words: "array[int]"
    ) -> None:
        if _current_index() != index:
            # The driver launches on the current device, and stream 0 is that one's.
            with torch.cuda.device(index):
                self._enqueue(launches, index, stream, words)
            return
        address, count = words.buffer_info()
        words[-1] = address
        try:
            for kernel, grid in launches:
                kernel.launch(grid, stream, address + 8 * (count - 1))
        except BaseException:
            # What one of two launches leaves for the other would be misread by the next step.
            for key in [key for key in self._workspaces if key[1] == stream]:
                self._outgrown.append(self._workspaces.pop(key))
            raise


def _current_stream(index: int) -> int:
    # The raw handle is fifty times cheaper to get than a Stream object.
    stream: int = torch._C._cuda_getCurrentRawStream(index)  # noqa: SLF001
    return stream


def _current_index() -> int:
    index: int = torch._C._cuda_getDevice()  # noqa: SLF001, without torch's own checks
    return index


def _room_in(workspace: Tensor, extent: Extent, device: Device) -> Workspace:
    check_workspace(workspace, extent.num_bytes, torch.device("cuda", device.index))
    return Workspace.of_bytes(workspace, extent)
