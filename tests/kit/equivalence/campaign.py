"""Many batches of a backend on a device, form by form, over processes; refuses to print."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context

import torch
from attrs import frozen

from acceptor.backends.conformance import Tally, load_backend, run_chunk, run_corners
from acceptor.core import Sampler
from kit.equivalence.forms import forms

MOST_ROUNDS = 4
ROOM = 10_000
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
    """

    backend: str
    device: str
    num_batches: int
    forms_per_policy: int
    num_workers: int

    def run(self) -> Iterator[Tally]:
        """The corners beside rounds over the forms, until enough batches were compared."""
        spawn = get_context("spawn")
        with ProcessPoolExecutor(self.num_workers, spawn, initializer=_use_one_thread) as pool:
            corners = pool.submit(_corners, self.backend, self.device)
            compared, numbers = 0, [*range(sum(1 for _ in forms(self.forms_per_policy)))]
            for turn in range(MOST_ROUNDS):
                size = -(-(self.num_batches - compared) // max(len(numbers), 1))
                if size <= 0:
                    break
                waiting = [pool.submit(_chunk, self, number, turn, size) for number in numbers]
                supported = []
                for number, found in zip(numbers, waiting, strict=True):
                    tally = found.result()
                    yield tally
                    compared += tally.num_batches
                    supported += [number] * (tally.num_batches > 0)
                numbers = supported
            yield corners.result()


def _corners(backend: str, device: str) -> Tally:
    return run_corners(_sampler(backend), torch.device(device))


def _chunk(campaign: Campaign, number: int, turn: int, size: int) -> Tally:
    form = [*forms(campaign.forms_per_policy)][number]
    run = partial(run_chunk, _sampler(campaign.backend), torch.device(campaign.device))
    one = run(turn * ROOM + number + ROOM // 2, 1, form.cases)
    # Whoever lacks the policy would draft every batch before saying so.
    return one + run(turn * ROOM + number, size, form.cases) if one.num_batches else one


@cache
def _sampler(backend: str) -> Sampler:
    # Kept, because a sampler keeps its compiled kernels.
    return load_backend(backend)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
