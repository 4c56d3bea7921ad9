"""Random sampling parameters of all kinds, from a seeded generator.

A batch's first request uses all features of its case, so the features alone decide which kernels a
batch needs.
"""

import math
from collections.abc import Sequence

import numpy as np
from attrs import asdict, frozen

from ...core.sampling_params import LogprobsMode, Recipe, SamplingParams
from .case import Case, Numbers, one_of

MIN_P = (1e-3, 0.05, 0.3, 1.0)
TOP_K = (1, 2, 3, 5, 20, 50, 600, 10**6)
TOP_P = (1e-6, 0.1, 0.25, 0.5, 0.9, 0.95, 0.999)
REPETITIONS = (1.0, 0.5, 1.25, 1.37)
ENDS, BOTH_ENDS = (1e-6, 1e-3, 1e3, 1e6), (-1e6, -1e3, 1e3, 1e6)
"""Extreme penalties."""


def all_params(case: Case) -> tuple[SamplingParams, ...]:
    """The parameters of every request of a case."""
    rng = np.random.default_rng(case.seed)
    shape = case.shaping(rng, 1)
    all_greedy = case.has("greedy") and shape.random() < 0.2
    places = range(len(case.num_draft_tokens))
    return tuple(_Choice(case, rng, shape, place == 0, all_greedy).params() for place in places)


@frozen
class _Choice:
    """Chooses one request's parameters, as the case's features allow."""

    case: Case
    rng: Numbers
    shape: Numbers
    is_first: bool
    is_greedy: bool

    def params(self) -> SamplingParams:
        adjusts = self._asks("penalties", 0.6)
        return SamplingParams(
            **asdict(self._recipe()),
            seed=int(self.rng.integers(0, 2**64, dtype=np.uint64)),
            draft=self._recipe() if self.case.has("draft recipe") else None,
            logit_bias=self._bias() if self._asks("bias") else {},
            # 1 would be no penalty, and the first request must have one.
            repetition_penalty=self._any(REPETITIONS[self.is_first :], ENDS) if adjusts else 1.0,
            presence_penalty=self._any((-0.5, 0.0, 0.71), BOTH_ENDS) if adjusts else 0.0,
            frequency_penalty=self._any((-0.3, 0.0, 0.25), BOTH_ENDS) if adjusts else 0.0,
            logprobs=self._logprobs() if self._asks("logprobs") else None,
            logprobs_mode=LogprobsMode.PROCESSED if self._one_in(2) else LogprobsMode.RAW,
        )

    def _recipe(self) -> Recipe:
        return Recipe(
            temperature=self._temperature(),
            min_p=one_of(self.rng, MIN_P) if self._asks("min-p") else 0.0,
            top_k=one_of(self.rng, TOP_K) if self._asks("top-k") else 0,
            top_p=one_of(self.rng, TOP_P) if self._asks("top-p") else 1.0,
        )

    def _temperature(self) -> float:
        may_be_greedy = self.case.has("greedy") and not self.is_first
        if self.is_greedy or (may_be_greedy and self.shape.random() < 0.5):
            return 0.0
        if self._is_extreme():
            return one_of(self.rng, (1.2e-38, 1e-30, 0.01, 0.05, 20.0, 100.0, 1e6))
        return float(self.rng.uniform(0.2, 2.5)) if self.case.has("temperature") else 1.0

    def _bias(self) -> dict[int, float]:
        # Ids beyond the vocabulary must have no effect.
        num_ids = self.case.vocab_size + 1
        wanted = min(one_of(self.shape, (1, 2, 5, 40)), num_ids)
        ids = self.rng.choice(num_ids, wanted, replace=False)
        return {token_id: self._one_bias() for token_id in ids.tolist()}

    def _one_bias(self) -> float:
        if self.rng.random() < 0.3:
            return -math.inf
        return self._any((float(self.rng.normal(scale=3)),), [1e3 * end for end in BOTH_ENDS])

    def _any(self, usual: Sequence[float], extreme: Sequence[float]) -> float:
        return one_of(self.rng, extreme if self._is_extreme() else usual)

    def _logprobs(self) -> int:
        # The request with most entries decides the shape for all.
        return min(20 if self.is_first else one_of(self.shape, (0, 1, 4, 20)), self.case.vocab_size)

    def _is_extreme(self) -> bool:
        return self.case.has("extremes") and self._one_in(2)

    def _asks(self, feature: str, share: float = 0.7) -> bool:
        return self.case.has(feature) and (self.shape.random() < share or self.is_first)

    def _one_in(self, number: int) -> bool:
        return bool(self.rng.integers(number) == 0)
