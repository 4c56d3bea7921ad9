"""A long run of one or two backends over processes, in chunks that each can be run again.

Batches are built and judged by all workers, and few of these call a GPU at once.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from multiprocessing import Manager, active_children, get_context

import torch
from attrs import evolve, frozen

from .calls import Backend, Watched
from .case import Case
from .check import Check
from .corners import corners
from .findings import Findings, Tally
from .generate import MOST_BY_MANY, Generator
from .loading import load_backend
from .run import Failure, run_all, smallest_failure

Tallies = tuple[Tally, ...]
Named = tuple[str, Callable[[Watched], Findings]]
"""A check and what it is reported as."""

CHUNK = 100
"""Batches that share a seed."""

CORNER_PARTS = 4
"""Workers that share the corners."""

CALLERS = 4
"""Processes that may call a GPU at once: it serves one after the other, and switching costs."""

GRACE_SECONDS = 5.0
"""Before the deadline: workers end with what they have compared."""

LARGE_SHARE = 8
"""Chunks of vocabularies above `MOST_BY_MANY`, which take long to judge, are so much smaller."""


@frozen
class Campaign:
    """What to run.

    Attributes:
        backends: one or two names that `load_backend` takes; two have every batch both.
        device: where.
        generator: makes the batches.
        num_workers: processes.
        chunk: batches of a chunk of vocabularies that are not large.
        deadline: when to stop early, by the system's clock.
        turn: entered for each call of a GPU.
    """

    backends: tuple[str, ...]
    device: str = "cpu"
    generator: Generator = Generator()
    num_workers: int = 1
    chunk: int = CHUNK
    deadline: float = math.inf
    turn: AbstractContextManager[object] = nullcontext()

    def run(
        self, numbers: Sequence[int], num_batches: int, *, with_corners: bool = True
    ) -> Iterator[tuple[int | None, Tallies]]:
        """The corners, and chunks by their numbers until they have enough batches.

        Each comes with its number as soon as it has ended. What has not ended by the deadline is
        lost.
        """
        tasks: list[tuple[int | None, _Task]] = []
        if with_corners:
            tasks += [(None, _Task(part)) for part in range(CORNER_PARTS)]
        for number in numbers:
            size = min(self.size_of(number), num_batches)
            num_batches -= size
            if size:
                tasks.append((number, _Task(number, size)))
        if self.num_workers == 1:
            yield from ((number, task(self)) for number, task in tasks)
            return
        with self._workers() as (campaign, pool):
            campaign.compile(pool)
            yield from self._ended({pool.submit(task, campaign): n for n, task in tasks})

    def _ended(
        self, pending: dict[Future[Tallies], int | None]
    ) -> Iterator[tuple[int | None, Tallies]]:
        while pending:
            done, _ = wait(pending, self._seconds_left(), FIRST_COMPLETED)
            if not done:
                return
            for future in done:
                number, found = pending.pop(future), future.result()
                # What began behind the deadline has nothing to tell.
                if any(tally != Tally() for tally in found):
                    yield number, found

    def compile(self, pool: Executor) -> None:
        """Run one batch of every form, so that kernels are compiled by all workers together."""
        if self.generator.num_forms and self.is_on_gpu:
            alone = evolve(self, turn=nullcontext())
            numbers = range(self.generator.num_forms)
            wait([pool.submit(_Task(n, 1), alone) for n in numbers], self._seconds_left())

    def size_of(self, number: int) -> int:
        """Batches of a chunk."""
        forms = self.generator.num_forms
        large = forms and self.generator.form(number % forms).vocab_size > MOST_BY_MANY
        return max(self.chunk // LARGE_SHARE, 1) if large else self.chunk

    def smallest_failure(self, case: Case) -> Failure | None:
        """What a failing case of the only backend comes down to."""
        return smallest_failure(case, load_backend(self.backends[0]), torch.device(self.device))

    def tallies(self, checks: Iterator[Named]) -> Tallies:
        """What some checks show of each backend, and of what lies between two, while time lasts."""
        total = tuple(Tally() for _ in range(2 * len(self.backends) - 1))
        device = torch.device(self.device)
        for name, check in checks:
            if time.time() > self.deadline - GRACE_SECONDS:
                break
            watched = [Watched(each, device, self.turn) for each in _samplers(self.backends)]
            for tally, findings in zip(total, run_all(check, watched), strict=True):
                tally.add(name, findings)
        return total

    @property
    def is_on_gpu(self) -> bool:
        """Whether calls leave the host."""
        return torch.device(self.device).type != "cpu"

    def _seconds_left(self) -> float | None:
        return None if math.isinf(self.deadline) else max(self.deadline - time.time(), 0.0)

    @contextmanager
    def _workers(self) -> "Iterator[tuple[Campaign, Executor]]":
        """Processes that end when this does, whatever they are at."""
        before = {*active_children()}
        # Forked processes cannot use CUDA.
        pool = ProcessPoolExecutor(
            self.num_workers, get_context("spawn"), initializer=_use_one_thread
        )
        try:
            with Manager() as manager:
                turn = manager.BoundedSemaphore(CALLERS) if self.is_on_gpu else self.turn
                yield evolve(self, turn=turn), pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            # A worker that compiles, or gives back what it has on a device, can take a minute.
            for worker in {*active_children()} - before:
                worker.kill()


@frozen
class _Task:
    """Some batches, whose number is their seed, or without a size a part of the corners."""

    number: int
    size: int | None = None

    def __call__(self, campaign: Campaign) -> Tallies:
        return campaign.tallies(self._checks(campaign.generator))

    def _checks(self, generator: Generator) -> Iterator[Named]:
        if self.size is None:
            yield from ((c.name, c.check) for c in [*corners()][self.number :: CORNER_PARTS])
        else:
            for case in generator.cases(self.number, self.size):
                yield case.to_json(), Check(case)


@cache
def _samplers(backends: tuple[str, ...]) -> tuple[Backend, ...]:
    # Kept, because a sampler keeps its compiled kernels.
    return (*map(load_backend, backends),)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
