"""The small models that a sampler under audit is run on, and what their rows say.

Rows do not depend on the tokens before them, so the target's law of a sequence is a product.
"""

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from ...backends.conformance.oracle.law import law_of
from ...core.sampling_params import Recipe

Floats = NDArray[np.float64]

# Chosen so that the laws of all known mistakes differ much.
TARGET_LOGITS = np.array([[2.0, 1.5, 2.5, 0.0], [7.0, 3.5, 0.0, 6.5], [0.0, 3.0, 0.0, 2.5]])
DRAFT_LOGITS = np.array([[6.5, 0.0, 7.5, 6.5], [0.0, 1.5, 6.0, 4.5]])


@frozen(eq=False)
class Laws:
    """Target [K + 1, V] and draft [K, V]; each row sums to 1."""

    target: Floats
    draft: Floats


def laws(target: float, draft: float | None = None) -> Laws:
    """The laws at a temperature, or at two, by the conformance kit's oracle; 0 is greedy."""
    temperatures = target, target if draft is None else draft
    of_rows = [
        np.exp([law_of(row, Recipe(temperature=temperature)).log_p for row in logits])
        for logits, temperature in zip((TARGET_LOGITS, DRAFT_LOGITS), temperatures, strict=True)
    ]
    return Laws(*of_rows)
