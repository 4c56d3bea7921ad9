"""CuPy's kernels compiled for the current device and not loaded; see `ahead`.

A batch of few requests takes one kernel of verification and, on request, that of logprobs. It
refuses to compile those that only larger batches take.
"""

import torch
from attrs import evolve, field, frozen

from acceptor.backends.cupy_backend.arguments import Job, sample_job, verify_job
from acceptor.backends.cupy_backend.cache import CompiledKernels, user_cache_directory
from acceptor.backends.cupy_backend.id_map import InverseMaps
from acceptor.backends.cupy_backend.logprobs import logprobs_variant
from acceptor.backends.cupy_backend.variant import SHARED_WITH_BERTHS, Variant
from acceptor.core import Policy, SampleBatch, SamplingTensors, VerifyBatch
from kit.equivalence.ahead import Claim


@frozen
class Architecture:
    """What code depends on.

    Attributes:
        number: compute capability, 90 for sm_90.
        has_room: see `Variant`.
    """

    number: int
    has_room: bool

    @classmethod
    def here(cls) -> "Architecture":
        """The current device's."""
        properties = torch.cuda.get_device_properties()
        shared = properties.shared_memory_per_multiprocessor
        return cls(10 * properties.major + properties.minor, shared >= SHARED_WITH_BERTHS)


@frozen
class CupyCompiler:
    """Compiles what it can claim."""

    _claim: Claim
    _architecture: Architecture = field(factory=Architecture.here)
    _inverses: InverseMaps = field(factory=InverseMaps, init=False)

    def verify(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> None:
        """What `CupySampler.verify` would launch."""
        inverse = self._inverses.of(batch.draft_to_target, batch.vocab_size)
        self._compile(verify_job(batch, params, policy, inverse), told=params.num_logprobs)

    def sample(self, batch: SampleBatch, params: SamplingTensors) -> None:
        """What `CupySampler.sample` would launch."""
        inverse = self._inverses.of(batch.draft_to_target, batch.target_vocab_size or 0)
        told = params.num_logprobs if batch.draft_index is None else None
        self._compile(sample_job(batch, params, inverse), told)

    def _compile(self, job: Job, told: int | None) -> None:
        variant = job.variant
        self._compile_one("wide" if variant.has_wide else "narrow", variant)
        if told is not None:
            self._compile_one("logprobs", logprobs_variant(job))

    def _compile_one(self, kernel: str, variant: Variant) -> None:
        macros = evolve(variant, has_room=self._architecture.has_room).macros
        compiled = CompiledKernels(user_cache_directory())
        path = compiled.path(kernel, macros, self._architecture.number)
        if self._claim(path.name):
            compiled.load(kernel, macros, self._architecture.number)
