"""What counts prove, by bounds that hold for every number of draws.

Agrawal, "Finite-sample concentration of the multinomial in relative entropy", IEEE Transactions on
Information Theory 66 (2020): for n draws from a law of k outcomes and t > k - 1, n KL(counts / n,
law) is at least t with probability at most (e t / (k - 1))^(k - 1) e^-t.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MISSED = 0.01
"""The largest probability that a deviation which is called detectable passes."""


def log_likelihood_ratio(counts: Floats, law: Floats) -> float:
    """n KL(counts / n, law), [k] each; infinite where something came that cannot."""
    seen = counts > 0
    if (law[seen] == 0).any():
        return math.inf
    expected = counts.sum() * law[seen]
    return float((counts[seen] * np.log(counts[seen] / expected)).sum())


def largest_ratio(chance: float, num_outcomes: int) -> float:
    """What the ratio reaches with at most this probability."""
    freedom, ratio = num_outcomes - 1, 10 * num_outcomes - math.log(chance)
    # The bound solved for t; each round comes nearer, from above.
    for _ in range(100 if freedom else 0):
        ratio = freedom * (1 + math.log(ratio / freedom)) - math.log(chance)
    return ratio


def detectable_variation(chance: float, num_outcomes: int, num_draws: int) -> float:
    """A law this far from the right one, in total variation, reaches `largest_ratio`.

    By Pinsker's inequality, and McDiarmid's for how far counts stray from their own law. What the
    right law excludes counts as one outcome more.
    """
    noticed = math.sqrt(largest_ratio(chance, num_outcomes) / (2 * num_draws))
    strayed = math.sqrt(num_outcomes / num_draws) / 2
    return noticed + strayed + math.sqrt(-math.log(MISSED) / (2 * num_draws))
