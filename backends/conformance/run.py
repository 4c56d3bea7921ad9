"""Many cases in a row, and the smallest one that fails; reproducible by a number.

It refuses to stop at a failure that it can count instead.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from attrs import frozen
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.strategies import SearchStrategy

from ...core.errors import UnavailableError
from ...core.ports import Sampler
from .case import Case
from .check import check
from .corners import corners
from .findings import Difference, Findings
from .strategies import cases
from .tally import Tally

CHUNK = 1000
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


def run_corners(sampler: Sampler, device: torch.device) -> Tally:
    """Compare the fixed cases."""
    tally = Tally()
    for corner in corners():
        tally.add(corner.name, guarded(partial(corner.check, sampler, device)))
    return tally


def run_chunk(
    sampler: Sampler,
    device: torch.device,
    chunk: int,
    num_batches: int = CHUNK,
    strategy: SearchStrategy[Case] | None = None,
) -> Tally:
    """Compare many cases; the chunk's number is their seed."""
    tally = Tally()

    def count(case: Case) -> None:
        tally.add_case(case, run_case(case, sampler, device))

    each_case(count, chunk, num_batches, strategy)
    return tally


def first_failure(
    sampler: Sampler,
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


def run_case(case: Case, sampler: Sampler, device: torch.device) -> Findings | None:
    """What a case shows; a crash is a difference, a policy that the backend lacks gives None."""
    return guarded(partial(check, case, sampler, device))


def guarded(compare: Callable[[], Findings]) -> Findings | None:
    """What comparing shows; a crash is a difference, something unavailable gives None."""
    try:
        return compare()
    except UnavailableError:
        return None
    except Exception as error:  # noqa: BLE001 whatever a backend raises is a finding
        got = f"{type(error).__name__}: {error}"
        return Findings(differences=(Difference(-1, -1, "call", "an output", got, math.inf),))


class _UnexplainedError(Exception):
    """Tells Hypothesis that a case fails."""


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
