"""Logprobs once more, with how exactly float32 can tell them."""

import numpy as np
from attrs import frozen

from ....core.sampling_params import Recipe
from .filters import Flags
from .law import law_of, log_sum, relative
from .noise import Floats


@frozen(eq=False)
class RowLogprobs:
    """Logprobs of one row.

    Attributes:
        values: [V].
        doubted: [V], tokens that a filter may keep or cut by a hair.
        logits: [V], what they were made of.
        is_filtered: whether filters may have cut tokens.
    """

    values: Floats
    doubted: Flags
    logits: Floats
    is_filtered: bool = False

    @classmethod
    def of(cls, raw: Floats, logits: Floats, recipe: Recipe, *, processed: bool) -> "RowLogprobs":
        """In the request's mode; at temperature 0 the processed law is that of adjusted logits."""
        nothing = np.zeros(len(raw), dtype=bool)
        if not processed:
            return cls(_log_softmax(raw), nothing, raw)
        if recipe.temperature == 0:
            return cls(_log_softmax(logits), nothing, logits)
        law = law_of(logits, recipe)
        doubted = law.doubted() if recipe.has_filters else nothing
        is_top_k_alone = recipe.min_p == 0 and recipe.top_p == 1
        cuts_nothing = is_top_k_alone and recipe.top_k >= len(logits)
        return cls(law.log_p, doubted, logits, recipe.has_filters and not cuts_nothing)

    @property
    def most_likely(self) -> list[int]:
        """Token ids, lowest first among equals."""
        order: list[int] = np.argsort(-self.values, kind="stable").tolist()
        return order

    @property
    def largest(self) -> list[int]:
        """Token ids, among equals those with larger logits first, which weigh the same in float.

        Tokens that a filter cut have no order but their ids'.
        """
        cut = self.is_filtered & (self.values == -np.inf)
        ranks = np.where(cut, 0.0, -self.logits)
        order: list[int] = np.lexsort((ranks, -self.values)).tolist()
        return order

    def is_close(self, token_id: int, value: float) -> bool:
        """Whether a float32 logprob of a token may be this one."""
        with np.errstate(over="ignore"):
            expected = float(np.float32(self.values[token_id]))
        return value == expected or abs(value - expected) <= self.tolerance(token_id)

    def gap(self, token_id: int, other: int) -> float:
        """How far apart two are, in nats; infinite where a filter may keep one of two it cuts."""
        values = self.values[[token_id, other]]
        if (values == -np.inf).all():
            return float("inf") if self.doubted[[token_id, other]].any() else 0.0
        return abs(float(values[0] - values[1]))

    def tolerance(self, token_id: int) -> float:
        """How far off a float32 logprob may be."""
        value = self.values[token_id]
        if self.doubted.any():
            return float("inf")
        if not np.isfinite(value):
            return 0.0
        return 1e-4 + 1e-5 * abs(float(value))


def _log_softmax(logits: Floats) -> Floats:
    log_weights = relative(logits)
    return log_weights - log_sum(log_weights)
