"""min-p, top-k and top-p by brute force, and which tokens they may keep or cut by a hair."""

import math

import numpy as np
from attrs import define
from numpy.typing import NDArray

from ....core.sampling_params import Recipe

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@define(eq=False)
class Support:
    """The tokens that survive all filters: [V] each.

    Logits are exact in float32, and so is their order: only masses and min-p's edge leave a doubt.

    Attributes:
        exact: in exact arithmetic.
        certain: whatever float32 does.
        possible: by some rounding.
    """

    exact: Flags
    certain: Flags
    possible: Flags

    @classmethod
    def of(
        cls, logits: Floats, scaled: Floats, slack: Floats, recipe: Recipe, tolerance: float
    ) -> "Support":
        """Of log weights, each known to within its slack, and the logits that they are made of."""
        keep = scaled > -np.inf
        support = cls(keep, keep, keep)
        if recipe.min_p > 0:
            edge = math.log(recipe.min_p)
            support._cut(scaled >= edge, (abs(scaled - edge) <= tolerance + slack) & (scaled < 0))
        if 0 < recipe.top_k < len(logits):
            edge = _kth_largest(logits, support.exact, recipe.top_k)
            support._cut(logits >= edge, np.zeros_like(keep))
        if recipe.top_p < 1:
            doubted = np.exp(scaled[support.possible & ~support.certain]).sum()
            uncertain = tolerance + doubted / np.exp(scaled[support.exact]).sum()
            kept = support.exact
            of_kept = (logits[kept], scaled[kept], slack[kept])
            edge, close = _top_p(*of_kept, recipe.top_p, uncertain)
            support._cut(logits >= edge, np.isin(logits, close))
        # Without a change there is no doubt.
        return support if tolerance else cls(support.exact, support.exact, support.exact)

    def _cut(self, keep: Flags, close: Flags) -> None:
        self.exact = self.exact & keep
        self.certain = self.certain & keep & ~close
        self.possible = self.possible & (keep | close)


def _kth_largest(logits: Floats, keep: Flags, k: int) -> float:
    ordered = np.sort(logits[keep])[::-1]
    return float(ordered[k - 1]) if k <= len(ordered) else -math.inf


def _top_p(
    logits: Floats, scaled: Floats, slack: Floats, top_p: float, uncertain: float
) -> tuple[float, Floats]:
    """Of kept tokens: the least logit that top-p keeps, and those that rounding may keep or cut."""
    masses = np.exp(scaled)
    total = masses.sum()
    falling, place = np.unique(-logits, return_inverse=True)
    above = np.concatenate(([0.0], np.cumsum(np.bincount(place, weights=masses))[:-1])) / total
    edge, mass = -float(falling[above < top_p].max()), total * top_p
    if ((masses == 0) | (masses == 1)).all() and mass == np.float32(mass):
        # Masses are whole numbers, which float32 adds up and compares exactly.
        return edge, falling[:0]
    uncertain += 2 * float(masses @ slack) / float(total)
    close = abs(above - top_p) <= uncertain * top_p
    # Nothing lies above the largest.
    close[0] = False
    return edge, -falling[close]
