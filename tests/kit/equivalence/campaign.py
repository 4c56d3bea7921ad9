"""Many batches of one or two backends on a device, form by form, over processes; refuses to print.

Which batches those are does not depend on how fast anything is, unless a deadline cuts them short.
"""

import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import active_children, get_context
from operator import itemgetter
from pathlib import Path

import torch
from attrs import evolve, frozen

from acceptor.backends.conformance import Case, load_backend
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.run import each_case
from acceptor.core import Sampler, Strict
from kit.equivalence.ahead import Forerun
from kit.equivalence.compare import Found, compare_case, compare_corner
from kit.equivalence.forms import SHARE, Form, forms
from kit.equivalence.on_device import OnDevice
from kit.equivalence.plan import TURN, Chunk, Plan

CORNER_PARTS = 4
"""Workers that share the corners."""

CHUNK = 48
"""Batches of a chunk of small vocabularies, unless told otherwise."""

CPU = torch.device("cpu")

ALL_SIZES = (1, 10**9)

GRACE_SECONDS = 5.0
"""Before the deadline: workers end with what they have compared, unless they compile."""


@frozen
class Campaign:
    """What to run.

    Attributes:
        backends: one or two names that `load_backend` takes; two have every batch both.
        device: where.
        num_batches: at least so many that no backend refuses.
        forms_per_policy: see `forms`.
        num_workers: processes.
        deadline: when to stop early, by the system's clock.
        vocab_sizes: the smallest and the largest; fewer are for slow simulators.
        chunk: batches of a chunk of small vocabularies; of large ones fewer, by the form's share.
        earlier: numbers of chunks and corners that another run of the same campaign had.
        num_earlier: batches that it compared.
    """

    backends: tuple[str, ...]
    device: str
    num_batches: int
    forms_per_policy: int
    num_workers: int
    deadline: float = math.inf
    vocab_sizes: tuple[int, int] = ALL_SIZES
    chunk: int = CHUNK
    earlier: frozenset[int] = frozenset()
    num_earlier: int = 0

    def run(self) -> Iterator[tuple[int, Found]]:
        """The corners, a chunk of every form, and further ones until enough were compared.

        Each comes with its number as soon as it has ended; the corners have the last numbers of the
        first turn. What has not ended by the deadline is lost.
        """
        corner_parts = [part for part in self._corner_parts() if part.number not in self.earlier]
        plan = self._plan()
        with _workers(self.num_workers) as pool, self._compiling(pool):
            pending: dict[Future[Found], Chunk | _Corners] = {
                pool.submit(_run_corners, self, part): part for part in corner_parts
            }
            while True:
                for chunk in self._due(plan, 2 * self.num_workers - len(pending)):
                    pending[pool.submit(_compare, self, chunk)] = chunk
                done, _ = wait(pending, self._seconds_left(), FIRST_COMPLETED)
                if not done:
                    return
                for future in done:
                    part, found = pending.pop(future), future.result()
                    # Whoever began behind the deadline has nothing to tell, nor to be recorded for.
                    if found != Found.nothing(len(self.backends)):
                        yield part.number, found
                    if isinstance(part, Chunk):
                        plan.note(part, found.compared)
                    else:
                        plan.num_batches += part.size - found.compared.num_batches

    def compile(self) -> None:
        """Only compile what the first turn needs, for runs that follow."""
        with _workers(self.num_workers) as pool, self._compiling(pool) as ahead:
            wait(ahead, self._seconds_left())

    @contextmanager
    def _compiling(self, pool: Executor) -> Iterator[Sequence[Future[None]]]:
        """Workers compile first; raises what they could not."""
        ahead: list[Future[None]] = []
        with tempfile.TemporaryDirectory() as claims:
            if torch.device(self.device).type == "cuda":
                forerun = Forerun(self.backends, Path(claims), self.deadline - GRACE_SECONDS)
                ahead += [pool.submit(task) for task in forerun.tasks(self._first_turn())]
            yield ahead
        for future in ahead:
            if future.done() and not future.cancelled():
                future.result()

    def _due(self, plan: Plan, most: int) -> list[Chunk]:
        # Chunks that begin behind the deadline compare nothing, and so there would always be more.
        return plan.ready(most) if self.has_time else []

    @property
    def has_time(self) -> bool:
        """Whether a batch may still begin."""
        return time.time() <= self.deadline - GRACE_SECONDS

    def _seconds_left(self) -> float | None:
        return None if math.isinf(self.deadline) else max(self.deadline - time.time(), 0.0)

    def _plan(self) -> Plan:
        sizes = {part.number: part.size for part in self._corner_parts()}
        plan = Plan(self._first_turn(), self.num_batches - sum(sizes.values()))
        corners_before = sum(sizes[number] for number in self.earlier & sizes.keys())
        plan.resume(self.earlier - sizes.keys(), self.num_earlier - corners_before)
        return plan

    def _corner_parts(self) -> "list[_Corners]":
        sizes = [len([*corners()][part::CORNER_PARTS]) for part in range(CORNER_PARTS)]
        return [_Corners(part, size) for part, size in enumerate(sizes)]

    def _first_turn(self) -> list[Chunk]:
        # Who comes first compiles for those that differ in their policy only; large ones take long.
        alike = Counter[Form]()
        ranked = []
        for chunk in self._one_of_each_form():
            kernels = evolve(chunk.form, policy=Strict())
            ranked.append(((alike[kernels], chunk.form.share, chunk.number), chunk))
            alike[kernels] += 1
        return [chunk for _, chunk in sorted(ranked, key=itemgetter(0))]

    def _one_of_each_form(self) -> Iterator[Chunk]:
        """Of the wanted sizes; numbers are those among all of them."""
        parts = [part for form in forms(self.forms_per_policy) for part in form.parts]
        if len(parts) > TURN - CORNER_PARTS:
            raise ValueError(f"forms: expected at most {TURN - CORNER_PARTS}, got {len(parts)}")
        smallest, largest = self.vocab_sizes
        for number, form in enumerate(parts):
            if smallest <= min(form.vocab_sizes) and max(form.vocab_sizes) <= largest:
                yield Chunk(form, max(1, self.chunk * form.share // SHARE), number)


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


def _run_corners(campaign: Campaign, some: _Corners) -> Found:
    samplers, device = _samplers(campaign.backends), torch.device(campaign.device)
    found = Found.nothing(len(samplers))
    for corner in [*corners()][some.part :: CORNER_PARTS]:
        found += compare_corner(corner, samplers, device)
    return found


def _compare(campaign: Campaign, chunk: Chunk) -> Found:
    samplers = _samplers_of_host_tensors(campaign.backends, campaign.device)
    found = Found.nothing(len(samplers))

    def compare(case: Case) -> None:
        nonlocal found
        # Whoever lacks the policy would draft every batch before saying so.
        lacks_policy = found.compared.num_unsupported > 0 and found.compared.num_batches == 0
        if not campaign.has_time or lacks_policy:
            raise _EnoughError
        found += compare_case(case, samplers, CPU)

    # Otherwise Hypothesis would go on to make batches that nobody compares.
    with suppress(_EnoughError):
        each_case(compare, chunk.number, chunk.size, chunk.form.cases)
    return found


class _EnoughError(Exception):
    """Ends a chunk."""


def _samplers_of_host_tensors(backends: tuple[str, ...], name: str) -> tuple[Sampler, ...]:
    samplers, device = _samplers(backends), torch.device(name)
    return samplers if device == CPU else (*(OnDevice(some, device) for some in samplers),)


@cache
def _samplers(backends: tuple[str, ...]) -> tuple[Sampler, ...]:
    # Kept, because a sampler keeps its compiled kernels.
    return (*map(load_backend, backends),)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
