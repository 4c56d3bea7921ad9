"""Kernels compiled before the batches that need them, each by one process.

Most of a cold run is compiling, and workers that meet a kernel at the same time would all compile
it. So batches go ahead whose answers nobody compares: the reference gives them, on the CPU, and
fused backends only compile what they would launch. It refuses to launch anything.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.run import each_case
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Policy,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.equivalence.compare import compare_case, compare_corner
from kit.equivalence.plan import Chunk
from kit.no_workspace import NoWorkspace

CPU = torch.device("cpu")

PARTS = 4
"""Tasks that share a chunk's batches: workers that begin together meet all forms soon."""

COMPILERS = {
    "triton": "kit.equivalence.ahead_triton:TritonCompiler",
    "cupy": "kit.equivalence.ahead_cupy:CupyCompiler",
}
"""By the backend's name; each is told which kernels it may claim."""

Claim = Callable[[str], bool]


def claim(folder: Path, name: str) -> bool:
    """Whether nobody took this name before, in any process that has the folder."""
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@frozen
class Forerunner(NoWorkspace):
    """Answers as the reference does, and lets backends compile what they would launch.

    Attributes:
        compilers: samplers of tensors on the CPU whose answers are not used.
    """

    compilers: Sequence[Sampler]
    _reference: ReferenceSampler = field(factory=ReferenceSampler, init=False)

    @classmethod
    def of(cls, backends: Sequence[str], folder: Path) -> "Forerunner":
        """For the backends that compile anything; the folder is that of all claims."""
        kinds = [COMPILERS[name].split(":") for name in backends if name in COMPILERS]
        makers = [getattr(import_module(module), name) for module, name in kinds]
        return cls([make(partial(claim, folder)) for make in makers])

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        for compiler in self.compilers:
            compiler.verify(batch, params, policy)
        return self._reference.verify(batch, params, policy, **memory)

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        """See `Sampler.sample`."""
        for compiler in self.compilers:
            compiler.sample(batch, params)
        return self._reference.sample(batch, params, **memory)


@frozen
class Forerun:
    """Batches that go ahead.

    Attributes:
        backends: those that will have the batches.
        claims: an empty folder.
        deadline: by the system's clock; what is not compiled by then is left.
    """

    backends: tuple[str, ...]
    claims: Path
    deadline: float

    def tasks(self, chunks: Sequence[Chunk]) -> Iterator[Callable[[], None]]:
        """What workers are to do, in this order; nothing if no backend compiles anything."""
        if {*self.backends} & {*COMPILERS}:
            for part in range(PARTS):
                yield partial(self._corners, part)
            for part in range(PARTS):
                for chunk in chunks:
                    yield partial(self._chunk, chunk, part)

    def _corners(self, part: int) -> None:
        for corner in [*corners()][part::PARTS]:
            if time.time() <= self.deadline:
                compare_corner(corner, self._samplers, CPU)

    def _chunk(self, chunk: Chunk, part: int) -> None:
        numbers = count()

        def look(case: Case) -> None:
            if time.time() > self.deadline:
                raise _LateError
            if next(numbers) % PARTS == part:
                compare_case(case, self._samplers, CPU)

        with suppress(_LateError):
            each_case(look, chunk.number, chunk.size, chunk.form.cases)

    @property
    def _samplers(self) -> tuple[Sampler, ...]:
        return (_forerunner(self.backends, self.claims),)


class _LateError(Exception):
    """Ends a chunk."""


@cache
def _forerunner(backends: tuple[str, ...], claims: Path) -> Forerunner:
    # Kept, because backends keep what they know of kernels.
    return Forerunner.of(backends, claims)
