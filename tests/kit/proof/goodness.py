"""Does a sample follow a law? Chi-square and G, with the effect that they would have noticed.

Power follows from the noncentral chi-square law of the statistic. Cells that are too thin for
either test are merged.
"""

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
        chi_square: Pearson's statistic.
        p_chi_square: the chance of a larger one.
        p_g: the same of the likelihood ratio.
        detectable: the smallest effect noticed with probability `POWER` at `ALPHA`, as a total
            variation. It is the worst case: a deviation that is not spread over all cells in
            proportion to their probability is noticed when smaller.
        variation: the total variation between frequencies and law; chance alone gives some.
    """

    num_draws: int
    num_cells: int
    freedom: int
    chi_square: float
    p_chi_square: float
    p_g: float
    detectable: float
    variation: float

    @property
    def p_value(self) -> float:
        """The smaller of the two."""
        return min(self.p_chi_square, self.p_g)


def goodness(counts: ArrayLike, probs: ArrayLike) -> Goodness:
    """Compare counts with a law, group by group.

    Args:
        counts: [num_groups, num_cells], or one group.
        probs: the same, rows proportional to the law of each group given its total.
    """
    observed = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    law = np.atleast_2d(np.asarray(probs, dtype=np.float64))
    totals = observed.sum(axis=1, keepdims=True)
    expected = totals * law / law.sum(axis=1, keepdims=True)
    if (observed[expected == 0] > 0).any():
        return Goodness(int(totals.sum()), 0, 0, np.inf, 0.0, 0.0, 0.0, 1.0)
    cells = [_merged(*group) for group in zip(observed, expected, strict=True)]
    freedom = sum(max(len(group[0]) - 1, 0) for group in cells)
    seen, awaited = (np.concatenate(part) for part in zip(*cells, strict=True))
    return _tested(seen, awaited, max(freedom, 1))


def effect_detectable(freedom: int, num_draws: float) -> float:
    """Cohen's w of a deviation noticed with probability `POWER` at `ALPHA`: sqrt(sum d²/p)."""
    critical = stats.chi2.isf(ALPHA, freedom)

    def shortfall(shift: float) -> float:
        return float(stats.ncx2.sf(critical, freedom, shift)) - POWER

    shift = optimize.brentq(shortfall, 1e-3, 1e3 + 100 * freedom)
    return float(np.sqrt(shift / num_draws))


def _tested(seen: NDArray[np.float64], awaited: NDArray[np.float64], freedom: int) -> Goodness:
    statistic = float(((seen - awaited) ** 2 / awaited).sum())
    ratios = np.where(seen > 0, seen, 1.0) / awaited
    g = float(2 * (seen * np.log(ratios)).sum())
    num_draws = float(awaited.sum())
    # A total variation d needs at least an effect of 2 d: Cauchy and Schwarz.
    return Goodness(
        num_draws=round(num_draws),
        num_cells=len(seen),
        freedom=freedom,
        chi_square=statistic,
        p_chi_square=float(stats.chi2.sf(statistic, freedom)),
        p_g=float(stats.chi2.sf(g, freedom)),
        detectable=effect_detectable(freedom, num_draws) / 2,
        variation=float(np.abs(seen - awaited).sum() / (2 * num_draws)),
    )


def _merged(
    observed: NDArray[np.float64], expected: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = np.argsort(expected, kind="stable")
    order = order[expected[order] > 0]
    if len(order) == 0:
        return observed[:0], expected[:0]
    # Rarest first, a cell begins wherever enough is gathered; what is left over joins the last.
    starts, gathered = [0], 0.0
    for place, mass in enumerate(expected[order].tolist()):
        if gathered >= LEAST_EXPECTED:
            starts.append(place)
            gathered = 0.0
        gathered += mass
    if gathered < LEAST_EXPECTED and len(starts) > 1:
        starts.pop()
    return np.add.reduceat(observed[order], starts), np.add.reduceat(expected[order], starts)
