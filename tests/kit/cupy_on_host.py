"""CuPy's kernels built by g++ and run on the CPU, as a sampler of host tensors.

Slow: every CUDA thread is a fiber. It refuses to wait for a GPU, and to say anything about one.
"""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.backends.cupy_backend.arguments import Job, sample_job, verify_job
from acceptor.backends.cupy_backend.logprobs import LogprobsLaunch, logprobs_variant
from acceptor.backends.cupy_backend.masks import refuse_masks
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.inverse_maps import InverseMaps
from acceptor.core import (
    Logprobs,
    Policy,
    SampleBatch,
    SampleOutput,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from acceptor.core.fit import check_sample_fits, check_verify_fits
from kit.cuda_on_host import Build, build_once, launch_twice
from kit.no_workspace import NoWorkspace

CPU = torch.device("cpu")
ROOM = 10
"""CTAs at once: few, because each is a thread of the operating system."""

UNWRITTEN = -77


def _built(source: str) -> Build:
    folder = Path(tempfile.mkdtemp(prefix="cupy-on-host-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_once(source, folder, lambda variant: ["-DHAS_WIDE"] * variant.has_wide)


@frozen(eq=False)
class HostSampler(NoWorkspace):
    """A `Sampler` for CPU tensors; what a kernel leaves unwritten is -77 or NaN."""

    _verification: Build = field(factory=lambda: _built("verify_on_host"), init=False)
    _logprobs: Build = field(factory=lambda: _built("logprobs_on_host"), init=False)
    _inverses: InverseMaps = field(factory=InverseMaps, init=False)

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **_: Any
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        refuse_masks(batch)
        check_verify_fits(batch, params)
        draft_map = self._inverse(batch.draft_to_target, batch.vocab_size)
        job = verify_job(batch, params, policy, draft_map)
        tokens = _unwritten(batch.num_reqs, batch.max_spec_len + 1).long()
        out = VerifyOutput(
            tokens, _unwritten(batch.num_reqs), _unwritten(batch.num_reqs), None, None
        )
        if not policy.lossless and policy.uses_draft_probs:
            variation = torch.full(tokens.shape, torch.nan)
            out = evolve(out, total_variation=variation)
            job.fields["variation"] = variation.data_ptr()
        job.fields["num_accepted"] = out.num_accepted.data_ptr()
        self._launch(job, tokens, out.status)
        return evolve(out, logprobs=self._told(job, params))

    def sample(self, batch: SampleBatch, params: SamplingTensors, **_: Any) -> SampleOutput:
        """See `Sampler.sample`."""
        refuse_masks(batch)
        check_sample_fits(batch, params)
        target_map = self._inverse(batch.draft_to_target, batch.target_vocab_size or 0)
        job = sample_job(batch, params, target_map)
        out = SampleOutput(_unwritten(batch.num_reqs).long(), _unwritten(batch.num_reqs), None)
        self._launch(job, out.token_ids, out.status)
        return out if batch.draft_index else evolve(out, logprobs=self._told(job, params))

    def _inverse(self, id_map: Tensor | None, vocab_size: int) -> Tensor | None:
        return None if id_map is None else self._inverses.of(id_map, vocab_size)

    def _launch(self, job: Job, token_ids: Tensor, status: Tensor) -> None:
        job.fields["token_ids"] = token_ids.data_ptr()
        job.fields["status"] = status.data_ptr()
        if job.extent.num_reqs:
            launch_twice(self._verification(job.variant), job, _shape(job))

    def _told(self, job: Job, params: SamplingTensors) -> Logprobs | None:
        if params.num_logprobs is None:
            return None
        launch = LogprobsLaunch.prepare(job, params, params.num_logprobs, ROOM, CPU)
        library = self._logprobs(logprobs_variant(job))
        assert library.logprob_params_size() == len(launch.packed)
        if launch.num_ctas:
            library.run_logprobs(bytes(launch.packed), launch.num_ctas)
        return launch.logprobs


def _unwritten(*size: int) -> Tensor:
    return torch.full(size, UNWRITTEN, dtype=torch.int32)


def _shape(job: Job) -> LaunchShape:
    room = max(ROOM, job.extent.num_reqs)
    if job.variant.has_wide:
        return LaunchShape.wide(job.extent, room, relief=job.variant.relief)
    return LaunchShape.narrow(job.extent, room)
