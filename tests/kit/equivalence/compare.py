"""Backends held to the oracle on the same batch, and two of them to each other.

It refuses to run more than two.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from attrs import define, frozen

from acceptor.backends.conformance import Case, Findings, Tally
from acceptor.backends.conformance.check import check_verify
from acceptor.backends.conformance.corners import Corner
from acceptor.backends.conformance.drafting import drafted_batch
from acceptor.backends.conformance.inputs import Inputs, make_inputs
from acceptor.backends.conformance.run import guarded
from acceptor.backends.conformance.sampling import draw, plain_batch
from acceptor.core import Sampler, VerifyBatch
from kit.equivalence.between import compare
from kit.equivalence.questions import Heard


@frozen
class Found:
    """What batches gave.

    Attributes:
        tallies: of the only backend; of two, each against the oracle and then against each other.
    """

    tallies: tuple[Tally, ...]

    @classmethod
    def nothing(cls, num_backends: int) -> "Found":
        """Of no batch."""
        return cls(tuple(Tally() for _ in range(2 * num_backends - 1)))

    def __add__(self, other: "Found") -> "Found":
        """Both."""
        pairs = zip(self.tallies, other.tallies, strict=True)
        return Found(tuple(mine + theirs for mine, theirs in pairs))

    @property
    def compared(self) -> Tally:
        """What tells how many batches all backends had."""
        return self.tallies[-1]


def compare_case(case: Case, samplers: Sequence[Sampler], device: torch.device) -> Found:
    """What one or two backends make of a batch; of two, the first one's drafts are verified."""
    same = _SameBatch(case, make_inputs(case, device))
    return _found(case.to_json(), samplers, same.check)


def compare_corner(corner: Corner, samplers: Sequence[Sampler], device: torch.device) -> Found:
    """What they make of a fixed check."""
    return _found(corner.name, samplers, lambda sampler: corner.check(sampler, device))


@define
class _SameBatch:
    """One case for several backends: `conformance.check` on inputs that are made once."""

    case: Case
    inputs: Inputs
    batch: VerifyBatch | None = None

    def check(self, sampler: Sampler) -> Findings:
        """Draw plainly, draft, and verify what was drafted first."""
        plain = draw(self.case, plain_batch(self.inputs), self.inputs.wishes, sampler)
        drafted = drafted_batch(self.case, self.inputs, sampler)
        self.batch = self.batch or drafted.batch
        verified = check_verify(self.case, self.batch, self.inputs.wishes, sampler)
        return plain.findings + drafted.findings + verified


def _found(name: str, samplers: Sequence[Sampler], check: Callable[[Sampler], Findings]) -> Found:
    heard = [Heard(sampler) for sampler in samplers]
    findings = [guarded(partial(check, sampler)) for sampler in heard]
    if len(heard) > 1:
        findings.append(_between((heard[0], heard[1]), findings))
    found = Found(tuple(Tally() for _ in findings))
    for tally, some in zip(found.tallies, findings, strict=True):
        tally.add(name, some)
    return found


def _between(pair: tuple[Heard, Heard], own: Sequence[Findings | None]) -> Findings | None:
    """The same requests and decisions as the first one's, and what differs between the two."""
    first, second = own
    if first is None or second is None:
        return None
    differing = guarded(lambda: Findings(differences=compare(*pair)))
    asked = Findings(first.num_requests, first.num_tests, races=first.races)
    return asked if differing is None else asked + differing
