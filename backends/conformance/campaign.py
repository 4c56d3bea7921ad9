"""A long run of one or two backends over many processes, in chunks that can each be run again.

On a GPU, workers first make calls of every kind, so that each kernel is compiled about once.
"""

import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice, product
from multiprocessing import active_children, get_context

import torch
from attrs import field, frozen

from ...core.errors import UnavailableError
from ...core.ports import Sampler
from .calls import Watched, load_backend
from .case import MOST_BY_MANY, NUM_SHAPES, Case, Generator
from .corners import corners
from .findings import Difference, Findings, Found, added
from .run import Check, Trial, run_all, run_case, smallest_failure

CHUNK = 100
"""How many batches share a seed."""

CORNER_PARTS = 8
"""How many tasks the corners are divided into."""

GRACE_SECONDS = 5.0
"""How long before the deadline workers stop and return what they have compared."""

LARGE_SHARE = 8
"""Chunks are smaller by this factor for vocabularies above `MOST_BY_MANY`, which judge slowly."""


@frozen
class Campaign:
    """The settings of a run.

    Attributes:
        backends: one or two names that `load_backend` takes; two get the same batches.
        device: "cuda" without a number spreads workers over all GPUs of the machine.
        chunk: batches in a chunk, unless vocabularies are large.
        deadline: when to stop early, by the system's clock.
    """

    backends: tuple[str, ...]
    device: torch.device = field(default=torch.device("cpu"), converter=torch.device)
    generator: Generator = Generator()
    num_workers: int = 1
    chunk: int = CHUNK
    deadline: float = math.inf

    @property
    def nothing(self) -> Found:
        """Empty findings, as before the first batch."""
        return (Findings(),) * (2 * len(self.backends) - 1)

    def run(
        self, first: int, num_batches: int, *, with_corners: bool = True
    ) -> Iterator[tuple[int | None, Found]]:
        """Run the corners, then chunks from number `first` on until there are enough batches.

        Findings come as soon as a chunk ends, with its number (None for corners). What has not
        ended by the deadline is lost.

        Raises:
            UnavailableError: a worker process died; all findings before that came.
        """
        parts = range(CORNER_PARTS if with_corners else 0)
        chunks = self._chunks(first, num_batches)
        if self.num_workers == 1:
            yield from ((None, self.found_in_corners(part)) for part in parts)
            yield from ((number, self.found(number, size)) for number, size in chunks)
            return
        with self._workers() as pool:
            pending: dict[Future[Found], int | None] = {
                pool.submit(self.found_in_corners, part): None for part in parts
            }
            pending |= self._submitted(pool, [*chunks])
            left = None if math.isinf(self.deadline) else max(self.deadline - time.time(), 0.0)
            with suppress(TimeoutError):
                for future in as_completed(pending, left):
                    # A task that began after the deadline has compared nothing.
                    if (found := future.result()) != self.nothing:
                        yield pending[future], found

    def _submitted(
        self, pool: Executor, chunks: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[Future[Found], int]]:
        """Submit chunks, and before those of a form that is new on a GPU, its rehearsals."""
        new = chunks[: self.generator.num_forms if self.device.type != "cpu" else 0]
        for place in range(0, len(chunks), self.num_workers):
            # Neighbours run at once, so they have different forms, which share few kernels.
            some = slice(place, place + self.num_workers)
            for shape, name, (number, _) in product(range(NUM_SHAPES), self.backends, new[some]):
                pool.submit(self.rehearse, shape, name, number)
            yield from ((pool.submit(self.found, *chunk), chunk[0]) for chunk in chunks[some])

    def rehearse(self, shape: int, name: str, number: int) -> None:
        """Let a backend compile what batches of one shape need in a chunk."""
        run_case(self.generator.shaped(number, shape), _sampler(name), self.device)

    def _chunks(self, first: int, num_batches: int) -> Iterator[tuple[int, int]]:
        forms = self.generator.num_forms
        while num_batches > 0:
            large = forms and self.generator.form(first % forms).vocab_size > MOST_BY_MANY
            size = min(max(self.chunk // LARGE_SHARE, 1) if large else self.chunk, num_batches)
            yield first, size
            first, num_batches = first + 1, num_batches - size

    def smallest_failure(self, failure: Difference) -> Findings:
        """The findings of the smallest failing case that the only backend's failure shrinks to."""
        case, here = Case.from_json(failure.shown_by), (_sampler(self.backends[0]), self.device)
        return run_case(smallest_failure(case, *here) or case, *here)

    def found(self, number: int, size: int) -> Found:
        """Run a chunk while time lasts."""
        cases = self.generator.cases(number, size)
        return self.shown((case.to_json(), Check(case)) for case in cases)

    def found_in_corners(self, part: int) -> Found:
        """Run one of the parts of the corners while time lasts."""
        return self.shown(islice(corners(), part, None, CORNER_PARTS))

    def shown(self, checks: Iterator[tuple[str, Trial]]) -> Found:
        """Run named checks while time lasts."""
        total = self.nothing
        for name, check in checks:
            if time.time() > self.deadline - GRACE_SECONDS:
                break
            watched = [Watched(each, self.device) for each in map(_sampler, self.backends)]
            total = added(total, [each.shown_by(name) for each in run_all(check, watched)])
        return total

    @contextmanager
    def _workers(self) -> Iterator[Executor]:
        """Processes that end with this context, whatever they are doing."""
        before = {*active_children()}
        # Forked processes cannot use CUDA.
        spawn, shared = get_context("spawn"), self.device == torch.device("cuda")
        num_gpus = torch.cuda.device_count() if shared else 1
        pool = ProcessPoolExecutor(self.num_workers, spawn, _begin_worker, (num_gpus,))
        try:
            yield pool
        except BrokenExecutor:
            raise UnavailableError(
                "workers: expected processes that last, got one that died"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            # A worker that compiles or frees device memory can take a minute.
            for worker in {*active_children()} - before:
                worker.kill()


@cache
def _sampler(name: str) -> Sampler:
    # Cached, because samplers keep their compiled kernels.
    return load_backend(name)


def _begin_worker(num_gpus: int) -> None:
    torch.set_num_threads(1)
    if num_gpus > 1:
        # Processes that start together have consecutive numbers.
        torch.cuda.set_device(os.getpid() % num_gpus)
    # Only the parent process handles an interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
