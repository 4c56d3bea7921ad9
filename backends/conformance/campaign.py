"""A long run of one or two backends over processes, in chunks that each can be run again.

Batches are built and judged by all workers, and few of these call a GPU at once.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from multiprocessing import Manager, active_children, get_context

import torch
from attrs import evolve, frozen
from hypothesis.strategies import SearchStrategy

from .calls import Backend, Watched
from .case import Case
from .check import Check
from .corners import corners
from .findings import Findings, Tally
from .loading import load_backend
from .run import CHUNK, Failure, each_case, first_failure, run_all
from .strategies import MOST_BY_MANY, POLICIES, cases, cases_of, form, policies

Tallies = tuple[Tally, ...]

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
        policies: names of `strategies.POLICIES`.
        largest_vocabulary: for backends that run in a slow simulator.
        num_workers: processes.
        num_forms: how many kinds of batches there are, see `strategies.form`; 0 for no limit.
        chunk: batches of a chunk of vocabularies that are not large.
        deadline: when to stop early, by the system's clock.
        turn: entered for each call of a GPU.
    """

    backends: tuple[str, ...]
    device: str = "cpu"
    policies: tuple[str, ...] = tuple(POLICIES)
    largest_vocabulary: int = 10**9
    num_workers: int = 1
    num_forms: int = 0
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
        tasks: list[tuple[int | None, Callable[[Campaign], Tallies]]] = []
        if with_corners:
            tasks += [(None, _Corners(part)) for part in range(CORNER_PARTS)]
        for number in numbers:
            size = min(self.size_of(number), num_batches)
            num_batches -= size
            if size:
                tasks.append((number, _Chunk(number, size)))
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
        if self.num_forms and self.is_on_gpu:
            alone = evolve(self, turn=nullcontext())
            futures = [pool.submit(_Chunk(n, 1), alone) for n in range(self.num_forms)]
            wait(futures, self._seconds_left())

    def size_of(self, number: int) -> int:
        """Batches of a chunk."""
        known = self._form(number)
        large = known is not None and known.vocab_size > MOST_BY_MANY
        return max(self.chunk // LARGE_SHARE, 1) if large else self.chunk

    def smallest_failure(self, number: int) -> Failure | None:
        """The first failure of a chunk of the only backend, shrunk."""
        sampler, device = load_backend(self.backends[0]), torch.device(self.device)
        return first_failure(sampler, device, number, self.size_of(number), self.strategy(number))

    def strategy(self, number: int) -> SearchStrategy[Case]:
        """The batches of a chunk."""
        known = self._form(number)
        if known is not None:
            return cases_of(known)
        return cases(policies(self.policies), self.largest_vocabulary)

    def watched(self) -> list[Watched]:
        """The backends, for one check."""
        device = torch.device(self.device)
        return [Watched(some, device, self.turn) for some in _samplers(self.backends)]

    @property
    def is_on_gpu(self) -> bool:
        """Whether calls leave the host."""
        return torch.device(self.device).type != "cpu"

    @property
    def has_time(self) -> bool:
        """Whether a batch may still begin."""
        return time.time() <= self.deadline - GRACE_SECONDS

    def _form(self, number: int) -> Case | None:
        if not self.num_forms:
            return None
        return form(number % self.num_forms, self.policies, self.largest_vocabulary)

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
class _Corners:
    """Some of the corners."""

    part: int

    def __call__(self, campaign: Campaign) -> Tallies:
        total = _nothing(campaign)
        for corner in [*corners()][self.part :: CORNER_PARTS]:
            _add(total, corner.name, run_all(corner.check, campaign.watched()))
        return total


@frozen
class _Chunk:
    """Some batches; the number is their seed."""

    number: int
    size: int

    def __call__(self, campaign: Campaign) -> Tallies:
        total = _nothing(campaign)

        def compare(case: Case) -> None:
            # Otherwise Hypothesis would go on to make batches that nobody compares.
            if not campaign.has_time:
                raise _EnoughError
            _add(total, case, run_all(Check(case), campaign.watched()))

        with suppress(_EnoughError):
            each_case(compare, self.number, self.size, campaign.strategy(self.number))
        return total


class _EnoughError(Exception):
    """Ends a chunk."""


def _nothing(campaign: Campaign) -> Tallies:
    return tuple(Tally() for _ in range(2 * len(campaign.backends) - 1))


def _add(total: Tallies, shown_by: Case | str, found: Sequence[Findings | None]) -> None:
    for tally, findings in zip(total, found, strict=True):
        tally.add(shown_by, findings)


@cache
def _samplers(backends: tuple[str, ...]) -> tuple[Backend, ...]:
    # Kept, because a sampler keeps its compiled kernels.
    return (*map(load_backend, backends),)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
