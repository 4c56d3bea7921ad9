"""CuPy's kernels built by g++ and run on the CPU, as a sampler of host tensors.

Slow: every CUDA thread is a fiber, and CTAs run one after the other or, by a schedule, in between.
"""

from typing import Any, TypeVar

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.backends.cupy_backend.arguments import job_of
from acceptor.backends.cupy_backend.job import Job
from acceptor.backends.cupy_backend.params import PLACES, SIZE
from acceptor.backends.cupy_backend.plan import enter_addresses
from acceptor.backends.cupy_backend.variant import KERNELS, MIXED
from acceptor.backends.inverse_maps import InverseMaps
from acceptor.core import (
    Policy,
    SampleBatch,
    SampleOutput,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
    empty_sample_output,
    empty_verify_output,
)

from .cuda_on_host import library_of

_MARGIN = 64
Output = TypeVar("Output", VerifyOutput, SampleOutput)


@frozen(eq=False)
class HostSampler:
    """A `Sampler` for CPU tensors; what a kernel leaves unwritten is -77 or NaN.

    Attributes:
        room: CTAs that read rows and pass for fitting on the device; few make pieces long.
        schedule: a seed of the order in which threads and CTAs run; 0 for their own.
    """

    room: int = 1000
    schedule: int = 0
    _inverses: InverseMaps = field(factory=InverseMaps, init=False)

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        out = memory.get("out") or _unwritten(empty_verify_output(batch, params, policy))
        ids = self._inverses.of(batch.draft_to_target, batch.vocab_size)
        self._run(job_of(batch, params, policy), (batch, params, ids, out), memory.get("workspace"))
        return out

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        out = memory.get("out") or _unwritten(empty_sample_output(batch, params))
        ids = self._inverses.of(batch.draft_to_target, batch.target_vocab_size or 0)
        self._run(job_of(batch, params, None), (batch, params, ids, out), memory.get("workspace"))
        return out

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        return job_of(batch, params, policy).extent.num_bytes

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        return job_of(batch, params, None).extent.num_bytes

    def _run(self, job: Job, given: tuple[Any, ...], workspace: Tensor | None) -> None:
        job.cut(self.room)
        words = job.words()
        enter_addresses(words, *given)
        if job.extent.num_reqs == 0:
            return
        size = job.extent.num_bytes
        own = torch.full((size + _MARGIN,), 0xAB, dtype=torch.uint8)
        own[: size // 2] = 0
        inside = own[:size] if workspace is None else workspace
        areas = job.extent.areas(inside.data_ptr(), inside.numel())
        for name, address in areas.items():
            words[PLACES[name]] = address
        # Kernels that learn each tensor's dtype when they are launched.
        variant = evolve(job.variant, logits=MIXED)
        for name, (x, y) in job.launches():
            library = library_of(variant)
            assert library.params_size() == SIZE
            library.set_schedule(self.schedule)
            getattr(library, f"run_{KERNELS[name].source or name}")(words.tobytes(), x, y)
            assert not library.was_stuck() & 1, "all threads of a CTA come to its barriers"
        assert not inside[: inside.numel() // 32 * 16].any(), "control words are 0 after a call"
        assert (own[size:] == 0xAB).all()


def _unwritten(out: Output) -> Output:
    tensors = [out.token_ids, out.status, getattr(out, "num_accepted", None)]
    tensors += [getattr(out, "total_variation", None)]
    if out.logprobs is not None:
        tensors += [out.logprobs.emitted, out.logprobs.top, out.logprobs.top_token_ids]
    for tensor in tensors:
        if tensor is not None:
            tensor.fill_(torch.nan if tensor.is_floating_point() else -77)
    return out
