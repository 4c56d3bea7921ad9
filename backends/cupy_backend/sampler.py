"""The CuPy sampler: a launch or two of CUDA C++ on torch's current stream.

It never waits for the device, except to compile a kernel that was never needed before. It refuses
tensors that are not on a CUDA device.
"""

from array import array

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.errors import InvalidInputError
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .arguments import Job, place, sample_job, verify_job
from .cache import CompiledKernels, user_cache_directory
from .device import Device, Kernel
from .id_map import InverseMaps
from .logprobs import LogprobsLaunch, logprobs_variant
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
        workspace: Workspace | None = None,
        out: VerifyOutput | None = None,
        shape: LaunchShape | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`.

        Args:
            batch: on a CUDA device.
            params: on the same device.
            policy: one of the core's.
            workspace: where to work; by default one per device and stream that this sampler keeps.
            out: where to write, of the shapes and dtypes that are returned, contiguous and on
                that device, which nobody checks; by default it is allocated.
            shape: how to cut the launch; by default by the batch's size.
        """
        plan = self._plans.find(batch, params, policy) if shape is None else None
        if plan is None:
            check_verify_fits(batch, params)  # or it was checked when the plan was made
        device = self._device(batch.target_logits)
        draft_map = None
        if batch.draft_to_target is not None:
            draft_map = self._inverses.of(batch.draft_to_target, batch.vocab_size)
        if out is None:
            out = _empty_output(batch, policy)
        if plan is None:
            job = verify_job(batch, params, policy, draft_map)
            plan = Plan.of(job, shape or self._shape(device, job))
            if shape is None:
                self._plans.keep(batch, params, policy, plan)
        self._start(device, plan, batch, draft_map, out, workspace)
        if params.num_logprobs is None:
            return out
        plan.job.fields["token_ids"] = out.token_ids.data_ptr()
        return evolve(out, logprobs=self._logprobs(device, plan.job, params, params.num_logprobs))

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        workspace: Workspace | None = None,
        out: SampleOutput | None = None,
        shape: LaunchShape | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`; the other arguments as in `verify`."""
        check_sample_fits(batch, params)
        device = self._device(batch.logits)
        target_map = self._inverses.of(batch.draft_to_target, batch.target_vocab_size or 0)
        job = sample_job(batch, params, target_map)
        if out is None:
            token_ids = torch.empty(batch.num_reqs, dtype=torch.int64, device=batch.logits.device)
            out = SampleOutput(token_ids, torch.empty_like(token_ids, dtype=torch.int32), None)
        job.fields["token_ids"] = out.token_ids.data_ptr()
        job.fields["status"] = out.status.data_ptr()
        self._launch(device, job, workspace, shape)
        if params.num_logprobs is None or batch.draft_index is not None:
            return out
        return evolve(out, logprobs=self._logprobs(device, job, params, params.num_logprobs))

    def workspace_extent(self, batch: VerifyBatch) -> Extent:
        """How large a workspace a batch needs: its `scratch_bytes` and `control_words`."""
        return Extent(
            num_reqs=batch.num_reqs,
            max_spec_len=batch.max_spec_len,
            num_logits=batch.target_logits.shape[0],
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
        self, device: Device, job: Job, workspace: Workspace | None, shape: LaunchShape | None
    ) -> None:
        if job.extent.num_reqs == 0:
            return
        stream = _current_stream(device.index)
        shape = shape or self._shape(device, job)
        if workspace is None:
            workspace = self._workspace(device, stream, job.extent)
        fields = job.fields
        place(fields, job.extent, workspace)
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
        workspace: Workspace | None,
    ) -> None:
        if batch.num_reqs == 0:
            return
        stream = _current_stream(device.index)
        if workspace is None:
            workspace = self._workspaces.get((device.index, stream))
            if workspace is None or not plan.fits(workspace):
                workspace = self._workspace(device, stream, plan.job.extent)
        words = plan.argument(batch, draft_map, out, workspace)
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
        self, device: Device, job: Job, params: SamplingTensors, num_logprobs: int
    ) -> Logprobs:
        kernel = device.verification("logprobs", logprobs_variant(job))
        where = torch.device("cuda", device.index)
        launch = LogprobsLaunch.prepare(job, params, num_logprobs, kernel.room, where)
        if launch.num_ctas > 0:
            stream = _current_stream(device.index)
            launches = [(kernel, (launch.num_ctas, 1, 1))]
            self._enqueue(launches, device.index, stream, words_of(launch.packed))
        return launch.logprobs

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


def _empty_output(batch: VerifyBatch, policy: Policy) -> VerifyOutput:
    shape = (batch.num_reqs, batch.max_spec_len + 1)
    device = batch.target_logits.device
    caused = None
    if not policy.lossless and policy.uses_draft_probs:
        caused = torch.empty(shape, device=device)
    return VerifyOutput(
        token_ids=torch.empty(shape, dtype=torch.int64, device=device),
        num_accepted=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        status=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        logprobs=None,
        total_variation=caused,
    )
