"""A long run over processes, in chunks that each can be run again; refuses to print."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import torch
from attrs import frozen
from hypothesis.strategies import SearchStrategy

from .case import Case
from .loading import load_backend
from .run import CHUNK, Failure, first_failure, run_chunk, run_corners
from .strategies import POLICIES, cases, policies
from .tally import Tally


@frozen
class Campaign:
    """What to run.

    Attributes:
        backend: a name that `load_backend` takes.
        device: where.
        policies: names of `strategies.POLICIES`.
        largest_vocabulary: for backends that run in a slow simulator.
        num_workers: processes.
    """

    backend: str
    device: str = "cpu"
    policies: tuple[str, ...] = tuple(POLICIES)
    largest_vocabulary: int = 10**9
    num_workers: int = 1

    def corners(self) -> Tally:
        """The fixed cases."""
        return run_corners(load_backend(self.backend), torch.device(self.device))

    def chunks(self, numbers: Sequence[int], num_batches: int) -> Iterator[Tally]:
        """Random cases, CHUNK or what is left of num_batches in each."""
        sizes = [min(CHUNK, num_batches - CHUNK * place) for place in range(len(numbers))]
        with self._mapper() as mapper:
            yield from mapper(self.chunk, numbers, sizes)

    def chunk(self, number: int, size: int) -> Tally:
        """One chunk of random cases."""
        sampler, device = load_backend(self.backend), torch.device(self.device)
        return run_chunk(sampler, device, number, size, self._strategy())

    def smallest_failure(self, number: int, size: int) -> Failure | None:
        """The first failure of a chunk, shrunk."""
        sampler, device = load_backend(self.backend), torch.device(self.device)
        return first_failure(sampler, device, number, size, self._strategy())

    def _strategy(self) -> SearchStrategy[Case]:
        return cases(policies(self.policies), self.largest_vocabulary)

    @contextmanager
    def _mapper(self) -> Iterator[Callable[..., Iterator[Tally]]]:
        if self.num_workers == 1:
            yield map
            return
        # Forked processes cannot use CUDA.
        spawn = get_context("spawn")
        with ProcessPoolExecutor(self.num_workers, spawn, initializer=_use_one_thread) as pool:
            yield pool.map


def _use_one_thread() -> None:
    torch.set_num_threads(1)
