"""Logprobs once more, with how exactly float32 can tell them."""

import numpy as np
from attrs import frozen

from ....core.sampling_params import Recipe
from .filters import Flags
from .law import Integers, law_of, log_sum, relative
from .noise import Floats


@frozen(eq=False)
class RowLogprobs:
    """Logprobs of one row.

    Attributes:
        values: [V].
        doubted: [V], tokens that a filter may keep or cut by a hair.
        logits: [V], what they were made of.
    """

    values: Floats
    doubted: Flags
    logits: Floats

    @classmethod
    def of(cls, raw: Floats, logits: Floats, recipe: Recipe, *, processed: bool) -> "RowLogprobs":
        """In the request's mode; at temperature 0 the processed law is that of adjusted logits."""
        nothing = np.zeros(len(raw), dtype=bool)
        if not processed:
            return cls(_log_softmax(raw), nothing, raw)
        if recipe.temperature == 0:
            return cls(_log_softmax(logits), nothing, logits)
        law = law_of(logits, recipe)
        return cls(law.log_p, law.doubted() if recipe.has_filters else nothing, logits)

    @property
    def most_likely(self) -> list[int]:
        """Ids of tokens that have weight, lowest first among equals."""
        return self._with_weight(np.argsort(-self.values, kind="stable"))

    @property
    def largest(self) -> list[int]:
        """The same, among equals those with larger logits first, which weigh the same in float."""
        return self._with_weight(np.lexsort((-self.logits, -self.values)))

    def _with_weight(self, order: Integers) -> list[int]:
        kept: list[int] = order[self.values[order] > -np.inf].tolist()
        return kept

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
