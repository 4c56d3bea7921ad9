"""min-p, top-k and top-p by brute force, and which tokens lie so close to an edge that both may be.

Every answer, a policy's too, includes those that a small relative change of the inputs can give.
"""

import math
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from ....core.sampling_params import Recipe

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@frozen(eq=False)
class Possible:
    """The possible answers to a question: flags, or arrays of flags over the vocabulary.

    Attributes:
        accept: whether the answer may be yes.
        reject: whether the answer may be no.
    """

    accept: Any
    reject: Any

    @classmethod
    def of(cls, exact: Any, doubted: Any = False) -> "Possible":
        """From an answer in float64, and where the opposite answer is possible, too."""
        return cls(exact | doubted, np.logical_not(exact) | doubted)

    @property
    def doubted(self) -> Any:
        """Whether both answers are possible."""
        return self.accept & self.reject

    def __getitem__(self, token_id: int) -> "Possible":
        """The answer for one token of the vocabulary."""
        return Possible(self.accept[token_id], self.reject[token_id])

    def __or__(self, other: "Possible") -> "Possible":
        """Either of two reasons suffices."""
        return Possible(self.accept | other.accept, self.reject & other.reject)

    def __and__(self, other: "Possible") -> "Possible":
        """Both conditions are needed."""
        return Possible(self.accept & other.accept, self.reject | other.reject)


def supported(
    logits: Floats, scaled: Floats, slack: Floats, recipe: Recipe, tolerance: float
) -> Possible:
    """Which tokens survive all filters: [V].

    Logits are exact in float32, and so is their order: only masses and min-p's edge are uncertain.

    Args:
        logits: [V].
        scaled: [V], logits minus the largest, divided by the temperature.
        slack: [V], the uncertainty of `scaled`.
    """
    exact = scaled > -np.inf
    may = Possible.of(exact)
    if recipe.min_p > 0:
        edge = math.log(recipe.min_p)
        keep = scaled >= edge
        close = (abs(scaled - edge) <= tolerance + slack) & (scaled < 0)
        exact, may = exact & keep, may & Possible.of(keep, close)
    if 0 < recipe.top_k < len(logits):
        keep = logits >= np.sort(np.where(exact, logits, -np.inf))[-recipe.top_k]
        exact, may = exact & keep, may & Possible.of(keep)
    if recipe.top_p < 1:
        of_kept = (logits[exact], scaled[exact], slack[exact])
        doubted = np.exp(scaled[may.doubted]).sum()
        uncertain = tolerance + doubted / np.exp(of_kept[1]).sum()
        edge, near = _top_p(*of_kept, recipe.top_p, uncertain)
        keep = logits >= edge
        exact, may = exact & keep, may & Possible.of(keep, np.isin(logits, near))
    # At tolerance 0 nothing is in doubt.
    return may if tolerance else Possible.of(exact)


def _top_p(
    logits: Floats, scaled: Floats, slack: Floats, top_p: float, uncertain: float
) -> tuple[float, Floats]:
    """The least logit that top-p keeps, and the logits that rounding may keep or cut."""
    masses = np.exp(scaled)
    total = masses.sum()
    falling, place = np.unique(-logits, return_inverse=True)
    above = np.concatenate(([0.0], np.cumsum(np.bincount(place, weights=masses))[:-1])) / total
    edge, mass = -float(falling[above < top_p].max()), total * top_p
    if ((masses == 0) | (masses == 1)).all() and mass == np.float32(mass):
        # Masses are whole numbers, which float32 adds and compares exactly.
        return edge, falling[:0]
    uncertain += 2 * float(masses @ slack) / float(total)
    close = abs(above - top_p) <= uncertain * top_p
    # The largest is always kept.
    close[0] = False
    return edge, -falling[close]
