"""Does a sample follow a law? A chi-square test that states what it would have noticed.

A test whose power is not what it claims fails, so too little data cannot pass.
"""

from math import inf

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike
from scipy import stats

FALSE_ALARM = 1e-6
POWER = 0.999


@frozen
class Verdict:
    """The outcome of one test.

    Attributes:
        p_value: the chance of a sample at least this far off, if the law is right.
        detects: the total variation that a wrong law must have to be noticed with probability
            0.999 at a false-alarm rate of 1e-6, whatever its direction.
    """

    p_value: float
    detects: float


def chi_square(counts: ArrayLike, probs: ArrayLike) -> Verdict:
    """Compare counts with probabilities; what has probability 0 must not occur at all."""
    observed = np.asarray(counts, dtype=np.float64)
    law = np.asarray(probs, dtype=np.float64)
    law = law / law.sum()
    if observed[law == 0].any():
        return Verdict(p_value=0.0, detects=0.0)
    observed, law = observed[law > 0], law[law > 0]
    num_draws, freedom = observed.sum(), len(law) - 1
    if freedom == 0:
        return Verdict(p_value=1.0, detects=0.0)
    statistic = ((observed - num_draws * law) ** 2 / (num_draws * law)).sum()
    # A shift of total variation d adds at least 4 n d^2 to the statistic's expectation.
    shift = _noncentrality(freedom)
    return Verdict(stats.chi2.sf(statistic, freedom), float(np.sqrt(shift / (4 * num_draws))))


def assert_follows(counts: ArrayLike, probs: ArrayLike, *, detects: float) -> None:
    """Assert that counts follow the law, and that a deviation of `detects` would be noticed."""
    verdict = chi_square(counts, probs)
    assert verdict.detects <= detects, f"too few draws: detects only {verdict.detects:.4f}"
    assert verdict.p_value > FALSE_ALARM, f"p = {verdict.p_value:.1e}"


def _noncentrality(freedom: int) -> float:
    critical = stats.chi2.isf(FALSE_ALARM, freedom)
    low, high = 0.0, 1e3 + 10 * freedom
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        enough = stats.ncx2.sf(critical, freedom, middle) >= POWER if middle < inf else True
        low, high = (low, middle) if enough else (middle, high)
    return high
