"""Many cases in a row, reproducible by a number; refuses to shrink: see `report`."""

import math

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from ...core.errors import UnavailableError
from ...core.ports import Sampler
from .case import Case
from .check import check
from .findings import Difference, Findings
from .strategies import cases
from .tally import Tally

CHUNK = 1000
"""Cases that one Hypothesis run generates: its memory of what it tried grows with them."""


def run_chunk(
    sampler: Sampler,
    device: torch.device,
    chunk: int,
    num_batches: int = CHUNK,
    largest_vocabulary: int = 10**9,
) -> Tally:
    """Compare a chunk of cases; the chunk's number is its seed."""
    tally = Tally()

    @seed(chunk)
    @settings(
        max_examples=num_batches,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(largest_vocabulary=largest_vocabulary))
    def compare(case: Case) -> None:
        try:
            tally.add(case, check(case, sampler, device))
        except UnavailableError:
            tally.num_unsupported += 1
        except Exception as error:  # noqa: BLE001 whatever a backend raises is a finding
            tally.add(case, _crashed(error))

    compare()
    return tally


def _crashed(error: Exception) -> Findings:
    got = f"{type(error).__name__}: {error}"
    return Findings(differences=(Difference(-1, -1, "call", "an output", got, math.inf),))
