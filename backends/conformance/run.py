"""Many cases in a row, and the smallest one that fails; reproducible by a number."""

import math
from collections.abc import Callable, Sequence

import torch
from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.strategies import SearchStrategy

from ...core.errors import UnavailableError
from .beside import between
from .calls import Backend, Watched
from .case import Case
from .check import Check
from .corners import corners
from .findings import Difference, Findings, Tally
from .strategies import cases

CHUNK = 100
"""Cases that one Hypothesis run generates: its memory of what it tried grows with them."""


@frozen
class Failure:
    """A case that fails.

    Attributes:
        case: as small as was asked for.
        differences: what is unexplained about it.
    """

    case: Case
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        """What differs, and how to see it again."""
        lines = [str(difference) for difference in self.differences]
        return "\n".join([*lines, f"--case '{self.case.to_json()}'"])


def run_corners(sampler: Backend, device: torch.device) -> Tally:
    """Compare the fixed cases."""
    tally = Tally()
    for corner in corners():
        tally.add(corner.name, run_all(corner.check, [Watched(sampler, device)])[0])
    return tally


def run_chunk(
    sampler: Backend,
    device: torch.device,
    chunk: int,
    num_batches: int = CHUNK,
    strategy: SearchStrategy[Case] | None = None,
) -> Tally:
    """Compare many cases; the chunk's number is their seed."""
    tally = Tally()
    each_case(
        lambda case: tally.add(case, run_case(case, sampler, device)), chunk, num_batches, strategy
    )
    return tally


def first_failure(
    sampler: Backend,
    device: torch.device,
    chunk: int,
    num_batches: int = CHUNK,
    strategy: SearchStrategy[Case] | None = None,
    *,
    shrink: bool = True,
) -> Failure | None:
    """The first case of a chunk that fails, made as small as it can be while it still fails."""
    failures: list[Failure] = []

    def compare(case: Case) -> None:
        findings = run_case(case, sampler, device)
        if findings is not None and findings.unexplained:
            failures.append(Failure(case, findings.unexplained))
            raise _UnexplainedError

    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    try:
        each_case(compare, chunk, num_batches, strategy, phases)
    except _UnexplainedError:
        # Hypothesis runs the smallest one last.
        return failures[-1]
    return None


class _UnexplainedError(Exception):
    """Tells Hypothesis that a case fails."""


def run_case(case: Case, sampler: Backend, device: torch.device) -> Findings | None:
    """What a case shows; a crash is a difference, a policy that the backend lacks gives None."""
    return run_all(Check(case), [Watched(sampler, device)])[0]


def run_all(
    check: Callable[[Watched], Findings], backends: Sequence[Watched]
) -> list[Findings | None]:
    """What a check shows of one backend, or of two and then of what lies between the two."""
    found = [_guarded(check, backend) for backend in backends]
    if len(backends) == 1 or None in found:
        return [*found, *[None] * (len(backends) - 1)]
    first, second = (some or Findings() for some in found)
    # The same requests and decisions as the first one's.
    compared = evolve(first, differences=tuple(between((*backends,), (first, second))))  # type: ignore[arg-type]
    return [first, second, compared]


def _guarded(check: Callable[[Watched], Findings], backend: Watched) -> Findings | None:
    """What a check shows; a crash is a difference, something unavailable gives None."""
    try:
        found = check(backend)
    except UnavailableError:
        return None
    except Exception as error:  # noqa: BLE001 whatever a backend raises is a finding
        got = f"{type(error).__name__}: {error}"
        found = Findings(differences=(Difference(-1, -1, "call", "an output", got, math.inf),))
    return found + Findings(differences=tuple(backend.faults))


def each_case(
    action: Callable[[Case], None],
    chunk: int,
    num_batches: int,
    strategy: SearchStrategy[Case] | None = None,
    phases: tuple[Phase, ...] = (Phase.generate,),
) -> None:
    """Let Hypothesis generate a chunk's cases, and do something with each."""
    configured = settings(
        max_examples=num_batches,
        phases=phases,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    seed(chunk)(configured(given(cases() if strategy is None else strategy)(action)))()
