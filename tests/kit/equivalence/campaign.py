"""Many batches of a backend on a device, form by form, over processes; refuses to print."""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import get_context

import torch
from attrs import frozen

from acceptor.backends.conformance import Case, Tally, load_backend, run_case, run_corners
from acceptor.backends.conformance.run import each_case
from acceptor.core import Sampler
from kit.equivalence.forms import Form, forms

MOST_ROUNDS = 4
ROUND = 1_000
"""Numbers of chunks that each round has to itself."""


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

    def run(self) -> Iterator[Tally]:
        """The corners beside rounds over the forms, until enough batches were compared."""
        spawn = get_context("spawn")
        with ProcessPoolExecutor(self.num_workers, spawn, initializer=_use_one_thread) as pool:
            corners = pool.submit(_corners, self.backend, self.device)
            compared, left = 0, dict(enumerate(forms(self.forms_per_policy)))
            for turn in range(MOST_ROUNDS):
                if time.time() > self.deadline:
                    break
                sizes = _sizes(left, self.num_batches - compared)
                waiting = {
                    number: pool.submit(_chunk, self, left[number], number + turn * ROUND, size)
                    for number, size in sizes.items()
                }
                for number, found in waiting.items():
                    tally = found.result()
                    yield tally
                    compared += tally.num_batches
                    if not tally.num_batches:
                        del left[number]
            yield corners.result()


def _sizes(left: Mapping[int, Form], num_batches: int) -> dict[int, int]:
    """Batches of each form, those first that take longest."""
    shares = max(sum(form.share for form in left.values()), 1)
    order = sorted(left, key=lambda number: left[number].share)
    sizes = {number: -(-num_batches * left[number].share // shares) for number in order}
    return sizes if num_batches > 0 else {}


def _corners(backend: str, device: str) -> Tally:
    return run_corners(_sampler(backend), torch.device(device))


def _chunk(campaign: Campaign, form: Form, chunk: int, size: int) -> Tally:
    tally = Tally()
    sampler, device = _sampler(campaign.backend), torch.device(campaign.device)

    def compare(case: Case) -> None:
        # Whoever lacks the policy would draft every batch before saying so.
        lacks_policy = tally.num_unsupported > 0 and tally.num_batches == 0
        if time.time() > campaign.deadline or lacks_policy:
            raise _EnoughError
        tally.add_case(case, run_case(case, sampler, device))

    # Otherwise Hypothesis would go on to make batches that nobody compares.
    with suppress(_EnoughError):
        each_case(compare, chunk, size, form.cases)
    return tally


class _EnoughError(Exception):
    """Ends a chunk."""


@cache
def _sampler(backend: str) -> Sampler:
    # Kept, because a sampler keeps its compiled kernels.
    return load_backend(backend)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
