"""Many batches of a backend on a device, form by form, over processes; refuses to print.

Which batches those are does not depend on how fast anything is, unless a deadline cuts them short.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import active_children, get_context

import torch
from attrs import evolve, frozen

from acceptor.backends.conformance import Case, Tally, load_backend, run_case, run_corners
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.run import each_case
from acceptor.core import Sampler, Strict
from kit.equivalence.forms import Form, forms
from kit.equivalence.plan import TURN, Chunk, Plan

CORNER_PARTS = 4
"""Workers that share the corners."""

CHUNK = 3
"""Batches of a chunk, times the form's share."""

GRACE_SECONDS = 5.0
"""Before the deadline: workers end with what they have compared, unless they compile."""


@frozen
class Campaign:
    """What to run.

    Attributes:
        backend: a name that `load_backend` takes.
        device: where.
        num_batches: at least so many that the backend does not refuse.
        forms_per_policy: see `forms`.
        num_workers: processes.
        deadline: when to stop early, by the system's clock.
    """

    backend: str
    device: str
    num_batches: int
    forms_per_policy: int
    num_workers: int
    deadline: float = math.inf

    def run(self) -> Iterator[tuple[int, Tally]]:
        """The corners, a chunk of every form, and further ones until enough were compared.

        Each comes with its number as soon as it has ended; the corners have the last numbers of the
        first turn. What has not ended by the deadline is lost.
        """
        corner_parts = self._corner_parts()
        plan = Plan(self._first_turn(), self.num_batches - len([*corners()]))
        with _workers(self.num_workers) as pool:
            pending: dict[Future[Tally], Chunk | _Corners] = {
                pool.submit(_run_corners, self, part): part for part in corner_parts
            }
            while True:
                for chunk in self._due(plan, 2 * self.num_workers - len(pending)):
                    pending[pool.submit(_compare, self, chunk)] = chunk
                done, _ = wait(pending, self._seconds_left(), FIRST_COMPLETED)
                if not done:
                    return
                for future in done:
                    part, tally = pending.pop(future), future.result()
                    yield part.number, tally
                    if isinstance(part, Chunk):
                        plan.note(part, tally)
                    else:
                        plan.num_batches += part.size - tally.num_batches

    def _due(self, plan: Plan, most: int) -> list[Chunk]:
        # Chunks that begin behind the deadline compare nothing, and so there would always be more.
        return plan.ready(most) if time.time() <= self.deadline - GRACE_SECONDS else []

    def _seconds_left(self) -> float | None:
        return None if math.isinf(self.deadline) else max(self.deadline - time.time(), 0.0)

    def _corner_parts(self) -> "list[_Corners]":
        sizes = [len([*corners()][part::CORNER_PARTS]) for part in range(CORNER_PARTS)]
        return [_Corners(part, size) for part, size in enumerate(sizes)]

    def _first_turn(self) -> list[Chunk]:
        parts = [part for form in forms(self.forms_per_policy) for part in form.parts]
        if len(parts) > TURN - CORNER_PARTS:
            raise ValueError(f"forms: expected at most {TURN - CORNER_PARTS}, got {len(parts)}")
        chunks = [Chunk(form, CHUNK * form.share, number) for number, form in enumerate(parts)]
        # Who comes first compiles for those that differ in their policy only; large ones take long.
        alike = Counter[Form]()
        ranks = []
        for chunk in chunks:
            kernels = evolve(chunk.form, policy=Strict())
            ranks.append((alike[kernels], chunk.form.share, chunk.number))
            alike[kernels] += 1
        return [chunks[number] for _, _, number in sorted(ranks)]


@frozen
class _Corners:
    """Some of the corners."""

    part: int
    size: int

    @property
    def number(self) -> int:
        return TURN - CORNER_PARTS + self.part


@contextmanager
def _workers(number: int) -> Iterator[Executor]:
    """Processes that end when this does, whatever they are at."""
    pool = ProcessPoolExecutor(number, get_context("spawn"), initializer=_use_one_thread)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        # A worker that compiles, or gives back what it has on a device, can take a minute.
        for worker in active_children():
            worker.kill()


def _run_corners(campaign: Campaign, some: _Corners) -> Tally:
    chosen = [*corners()][some.part :: CORNER_PARTS]
    return run_corners(_sampler(campaign.backend), torch.device(campaign.device), chosen)


def _compare(campaign: Campaign, chunk: Chunk) -> Tally:
    tally = Tally()
    sampler, device = _sampler(campaign.backend), torch.device(campaign.device)

    def compare(case: Case) -> None:
        # Whoever lacks the policy would draft every batch before saying so.
        lacks_policy = tally.num_unsupported > 0 and tally.num_batches == 0
        if time.time() > campaign.deadline - GRACE_SECONDS or lacks_policy:
            raise _EnoughError
        tally.add_case(case, run_case(case, sampler, device))

    # Otherwise Hypothesis would go on to make batches that nobody compares.
    with suppress(_EnoughError):
        each_case(compare, chunk.number, chunk.size, chunk.form.cases)
    return tally


class _EnoughError(Exception):
    """Ends a chunk."""


@cache
def _sampler(backend: str) -> Sampler:
    # Kept, because a sampler keeps its compiled kernels.
    return load_backend(backend)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
