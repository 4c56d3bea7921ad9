"""Tests whether a sample follows a law: Pearson's chi-square and G, with their power.

Power follows from the noncentral chi-square law of the statistic. Cells that are too thin for
either test are merged.
"""

from functools import cache

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

ALPHA = 1e-4
"""The chance of a false alarm, per test."""

POWER = 0.99
"""The chance that the effect called detectable is noticed."""

LEAST_EXPECTED = 10.0
"""Draws that a cell must expect; thinner ones are merged with their neighbours."""


@frozen
class Goodness:
    """The outcome of both tests.

    Attributes:
        num_draws: how many were counted.
        num_cells: after merging.
        freedom: degrees of freedom.
        p_chi_square: the chance of a larger chi-square.
        p_g: the chance of a larger likelihood ratio.
        detectable: the smallest effect noticed with probability `POWER` at `ALPHA`, as a total
            variation. It is the worst case: a deviation that is not spread over all cells in
            proportion to their probability is noticed when smaller.
    """

    num_draws: int
    num_cells: int
    freedom: int
    p_chi_square: float
    p_g: float
    detectable: float

    @property
    def p_value(self) -> float:
        return min(self.p_chi_square, self.p_g)


def goodness(
    counts: ArrayLike, probs: ArrayLike, alpha: float = ALPHA, power: float = POWER
) -> Goodness:
    """Compare counts with a law, group by group.

    Args:
        counts: [num_groups, num_cells], or one group.
        probs: the same, rows proportional to the law of each group given its total.
        alpha, power: what the detectable effect is for.
    """
    observed = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    law = np.atleast_2d(np.asarray(probs, dtype=np.float64))
    totals = observed.sum(axis=1, keepdims=True)
    expected = totals * law / law.sum(axis=1, keepdims=True)
    if (observed[expected == 0] > 0).any():
        return Goodness(int(totals.sum()), 0, 0, 0.0, 0.0, 0.0)
    cells = [_merged(*group) for group in zip(observed, expected, strict=True)]
    freedom = sum(max(len(group[0]) - 1, 0) for group in cells)
    seen, awaited = (np.concatenate(part) for part in zip(*cells, strict=True))
    return _tested(seen, awaited, max(freedom, 1), alpha, power)


def assert_follows(counts: ArrayLike, probs: ArrayLike, *, detects: float) -> None:
    """Assert that counts follow the law, and that a deviation of `detects` would be noticed.

    With probability 0.999, at a false-alarm rate of 1e-6.
    """
    found = goodness(counts, probs, alpha=1e-6, power=0.999)
    assert found.detectable <= detects, f"too few draws: detects only {found.detectable:.4f}"
    assert found.p_value > 1e-6, f"p = {found.p_value:.1e}"


def effect_detectable(
    freedom: int, num_draws: float, alpha: float = ALPHA, power: float = POWER
) -> float:
    """Cohen's w of a deviation noticed with this power: sqrt(sum d²/p)."""
    return float(np.sqrt(_shift_detectable(freedom, alpha, power) / num_draws))


@cache
def _shift_detectable(freedom: int, alpha: float, power: float) -> float:
    """How far such an effect moves the statistic's mean; slow to compute."""
    critical = stats.chi2.isf(alpha, freedom)

    def shortfall(shift: float) -> float:
        return float(stats.ncx2.sf(critical, freedom, shift)) - power

    return float(optimize.brentq(shortfall, 1e-3, 1e3 + 100 * freedom))


def _tested(
    seen: NDArray[np.float64],
    awaited: NDArray[np.float64],
    freedom: int,
    alpha: float,
    power: float,
) -> Goodness:
    num_draws, ddof = float(awaited.sum()), len(seen) - 1 - freedom
    p_chi_square, p_g = (
        float(stats.power_divergence(seen, awaited, ddof, lambda_=kind).pvalue)
        for kind in ("pearson", "log-likelihood")
    )
    # A total variation d needs at least an effect of 2 d: Cauchy and Schwarz.
    return Goodness(
        num_draws=round(num_draws),
        num_cells=len(seen),
        freedom=freedom,
        p_chi_square=p_chi_square,
        p_g=p_g,
        detectable=effect_detectable(freedom, num_draws, alpha, power) / 2,
    )


def _merged(
    observed: NDArray[np.float64], expected: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = np.argsort(expected, kind="stable")
    order = order[expected[order] > 0]
    if len(order) == 0:
        return observed[:0], expected[:0]
    # Rarest first: a cell ends when it has enough draws; the rest joins the last one.
    starts, gathered = [0], 0.0
    for place, mass in enumerate(expected[order].tolist()):
        if gathered >= LEAST_EXPECTED:
            starts.append(place)
            gathered = 0.0
        gathered += mass
    if gathered < LEAST_EXPECTED and len(starts) > 1:
        starts.pop()
    return np.add.reduceat(observed[order], starts), np.add.reduceat(expected[order], starts)
