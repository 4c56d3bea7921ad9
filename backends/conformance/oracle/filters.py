"""min-p, top-k and top-p by brute force, and which tokens they may keep or cut by a hair."""

import math

import numpy as np
from attrs import define
from numpy.typing import NDArray

from ....core.sampling_params import Recipe
from .noise import Floats

Flags = NDArray[np.bool_]


def kept(scaled: Floats, recipe: Recipe) -> Flags:
    """The tokens that survive all filters: [V]."""
    keep = scaled > -np.inf
    if recipe.min_p > 0:
        keep &= scaled >= math.log(recipe.min_p)
    if 0 < recipe.top_k < len(scaled):
        keep &= scaled >= _kth_largest(scaled, keep, recipe.top_k)
    if recipe.top_p < 1:
        values, above = _levels(scaled, keep)
        keep &= scaled >= values[above < recipe.top_p].min()
    return keep


@define(eq=False)
class Support:
    """The tokens that survive whatever float32 does, and those that may: [V] each.

    Logits are exact in float32, and so is their order: only masses and min-p's edge leave a doubt.
    """

    certain: Flags
    possible: Flags

    @classmethod
    def of(cls, scaled: Floats, slack: Floats, recipe: Recipe, tolerance: float) -> "Support":
        """Of log weights, each known to within its slack."""
        keep = scaled > -np.inf
        support = cls(keep.copy(), keep.copy())
        if recipe.min_p > 0:
            edge = math.log(recipe.min_p)
            close = (abs(scaled - edge) <= tolerance + slack) & (scaled < 0)
            support._cut(scaled >= edge, close)
            keep &= scaled >= edge
        if 0 < recipe.top_k < len(scaled):
            edge = _kth_largest(scaled, keep, recipe.top_k)
            support._cut(scaled >= edge, np.zeros_like(keep))
            keep &= scaled >= edge
        if recipe.top_p < 1:
            doubted = np.exp(scaled[support.possible & ~support.certain]).sum()
            doubted /= np.exp(scaled[keep]).sum()
            values, above = _levels(scaled, keep)
            edge = values[above < recipe.top_p].min()
            close = _close_by_mass(scaled, slack, keep, tolerance + doubted, recipe.top_p)
            support._cut(scaled >= edge, close)
        return support

    def _cut(self, keep: Flags, close: Flags) -> None:
        self.certain &= keep & ~close
        self.possible &= keep | close


def _kth_largest(scaled: Floats, keep: Flags, k: int) -> float:
    ordered = np.sort(scaled[keep])[::-1]
    return float(ordered[k - 1]) if k <= len(ordered) else -math.inf


def _levels(scaled: Floats, keep: Flags) -> tuple[Floats, Floats]:
    """The distinct values, largest first, and the share of the kept mass that lies above each."""
    values, place = np.unique(-scaled[keep], return_inverse=True)
    masses = np.bincount(place, weights=np.exp(scaled[keep]))
    above = np.concatenate(([0.0], np.cumsum(masses)[:-1]))
    return -values, above / masses.sum()


def _close_by_mass(
    scaled: Floats, slack: Floats, keep: Flags, uncertain: float, top_p: float
) -> Flags:
    values, above = _levels(scaled, keep)
    mass = np.exp(scaled[keep])
    if (mass == 1).all() and len(mass) * top_p == np.float32(len(mass) * top_p):
        # Masses are whole numbers, which float32 adds up and compares exactly.
        return np.zeros_like(keep)
    uncertain += 2 * float(mass @ slack[keep]) / float(mass.sum())
    close = abs(above - top_p) <= uncertain * top_p
    # Nothing lies above the largest.
    close[0] = False
    return np.isin(scaled, values[close])
