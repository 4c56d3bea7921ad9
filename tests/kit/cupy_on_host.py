"""CuPy's kernels built by g++ and run on the CPU, as a sampler of host tensors.

Slow: every CUDA thread is a fiber, and CTAs run one after the other or, by a schedule, in between.
"""

from typing import Any

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.backends.both_verbs import BothVerbs, Output, Verb
from acceptor.backends.cupy_backend.arguments import job_of
from acceptor.backends.cupy_backend.params import PLACES, SIZE
from acceptor.backends.cupy_backend.plan import enter_addresses
from acceptor.backends.cupy_backend.variant import KERNELS, MIXED
from acceptor.backends.inverse_maps import InverseMaps
from acceptor.core import Policy, SamplingTensors

from .cuda_on_host import library_of


@frozen(eq=False)
class HostSampler(BothVerbs):
    """A `Sampler` for CPU tensors; memory that a kernel does not write holds -77 or NaN.

    Attributes:
        room: how many reading CTAs the device pretends to hold; few make pieces long.
        schedule: a seed of the order in which threads and CTAs run; 0 for their own.
    """

    room: int = 1000
    schedule: int = 0
    _inverses: InverseMaps = field(factory=InverseMaps, init=False)

    def _num_bytes(self, batch: Any, params: SamplingTensors, policy: Policy | None = None) -> int:
        return job_of(batch, params, policy).extent.num_bytes

    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        batch, params, *rule = given
        job = job_of(batch, params, *rule)
        if out is None:
            out = _unwritten(verb.empty_output(*given))
        ids = self._inverses.of(batch.draft_to_target, job.extent.vocab_size)
        job.cut(self.room)
        words = job.words()
        enter_addresses(words, batch, params, ids, out)
        if job.extent.num_reqs == 0:
            return out
        size = job.extent.num_bytes
        own = torch.full((size + 64,), 0xAB, dtype=torch.uint8)
        own[: size // 2] = 0
        inside = own[:size] if workspace is None else workspace
        for name, address in job.extent.areas(inside.data_ptr(), inside.numel()).items():
            words[PLACES[name]] = address
        # Kernels that get each tensor's dtype at launch.
        variant = evolve(job.variant, logits=MIXED)
        for name, (x, y) in job.launches():
            library = library_of(variant)
            assert library.params_size() == SIZE
            library.set_schedule(self.schedule)
            getattr(library, f"run_{KERNELS[name].source or name}")(words.tobytes(), x, y)
            assert not library.was_stuck() & 1, "all threads of a CTA come to its barriers"
        assert not inside[: inside.numel() // 32 * 16].any(), "control words are 0 after a call"
        assert (own[size:] == 0xAB).all()
        return out


def _unwritten(out: Output) -> Output:
    names = ("token_ids", "status", "num_accepted", "total_variation")
    tensors = [getattr(out, name, None) for name in names]
    tensors += [getattr(out.logprobs, name, None) for name in ("emitted", "top", "top_token_ids")]
    for tensor in tensors:
        if tensor is not None:
            tensor.fill_(torch.nan if tensor.is_floating_point() else -77)
    return out
