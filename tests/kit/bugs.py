"""A planted bug: the reference with one thing changed, as a backend and as code under proof.

Each is a bug that some engine has had, or nearly had; `bugs_in_draws`, `bugs_in_laws` and
`bugs_in_batches` hold them, each beside its wrong code.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends.conformance import Case, Generator
from acceptor.backends.conformance.case import CROWDS
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    POLICIES,
    Policy,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)

Batch = VerifyBatch | SampleBatch
Change = tuple[object, str, object]
Decorator = Callable[[Any], "Bug"]
Right = Callable[..., Tensor]
"""The code that wrong code replaces."""


@frozen
class Bug(Sampler):
    """The reference with a bug.

    Attributes:
        name: what is wrong.
        changes: (owner, attribute, new value) while the bug is planted.
        misread: changes a batch and its parameters before a call.
        spoil: changes the output of a verification.
        policy: the only policy under which it shows; None if it shows under all.
        features: features with which random batches show it soon.
        least_vocab_size: the vocabulary from which on random batches show it soon.
        shown_by: "batches" of the conformance kit, part of the names of its corners, or "proof".
        check: the `Pair.name` whose law the proof must find wrong; None for bugs that change no
            law.
    """

    name: str
    changes: tuple[Change, ...] = ()
    misread: Callable[[Any, SamplingTensors], Any] = lambda *read: read
    spoil: Callable[[VerifyBatch, VerifyOutput], VerifyOutput] = lambda _, output: output
    policy: str | None = None
    features: Collection[str] = ()
    least_vocab_size: int = 1
    shown_by: str = "batches"
    check: str | None = None

    @classmethod
    def instead_of(cls, owner: object, attribute: str, name: str, **facts: Any) -> Decorator:
        """The decorated function, or another value, replaces the attribute."""
        return lambda wrong: cls(name, ((owner, attribute, wrong),), **facts)

    @classmethod
    def misreads(cls, name: str, **facts: Any) -> Decorator:
        """The decorated function changes a batch and its parameters."""
        return lambda misread: cls(name, misread=misread, **facts)

    @classmethod
    def spoils(cls, name: str, **facts: Any) -> Decorator:
        """The decorated function changes outputs."""
        return lambda spoil: cls(name, spoil=spoil, **facts)

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **_: Any
    ) -> VerifyOutput:
        with self.planted():
            read, asked = self.misread(batch, params)
            return self.spoil(batch, ReferenceSampler().verify(read, asked, policy))

    def sample(self, batch: SampleBatch, params: SamplingTensors, **_: Any) -> SampleOutput:
        with self.planted():
            read, asked = self.misread(batch, params)
            return ReferenceSampler().sample(read, asked)

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, attribute, new in self.changes:
                stack.enter_context(patch.object(owner, attribute, new))
            yield

    def batches(self, num_batches: int) -> Iterator[Case]:
        """Small batches, no crowds, that have what the bug needs to show."""
        names = tuple(POLICIES) if self.policy is None else (self.policy,)
        for case in Generator(names, largest_vocabulary=600).cases(0, num_batches):
            if len(case.num_draft_tokens) < CROWDS[0]:
                vocab_size = max(case.vocab_size, self.least_vocab_size)
                yield evolve(case, features=case.features | {*self.features}, vocab_size=vocab_size)


def bugs_of(module: Mapping[str, object]) -> tuple[Bug, ...]:
    """All bugs of a module, in its order."""
    return tuple(value for value in module.values() if isinstance(value, Bug))
