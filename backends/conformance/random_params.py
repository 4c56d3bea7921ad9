"""Sampling parameters of every mix, from a seeded generator."""

import math

import numpy as np

from ...core.sampling_params import LogprobsMode, Recipe, SamplingParams
from .case import Case


def all_params(case: Case) -> tuple[SamplingParams, ...]:
    """The parameters of every request of a case."""
    rng = np.random.default_rng(case.seed)
    return tuple(request_params(case, rng) for _ in case.num_draft_tokens)


def request_params(case: Case, rng: np.random.Generator) -> SamplingParams:
    """One request's parameters, as the case's features allow."""
    recipe = _recipe(case, rng)
    adjusted = case.has("penalties") and rng.random() < 0.6
    return SamplingParams(
        temperature=recipe.temperature,
        min_p=recipe.min_p,
        top_k=recipe.top_k,
        top_p=recipe.top_p,
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
        draft=_recipe(case, rng) if case.has("draft recipe") else None,
        logit_bias=_bias(case, rng),
        repetition_penalty=float(rng.choice((0.5, 1.0, 1.25, 1.37))) if adjusted else 1.0,
        presence_penalty=float(rng.choice((-0.5, 0.0, 0.71))) if adjusted else 0.0,
        frequency_penalty=float(rng.choice((-0.3, 0.0, 0.25))) if adjusted else 0.0,
        logprobs=_logprobs(case, rng),
        logprobs_mode=LogprobsMode.PROCESSED if rng.random() < 0.5 else LogprobsMode.RAW,
    )


def _recipe(case: Case, rng: np.random.Generator) -> Recipe:
    return Recipe(
        temperature=_temperature(case, rng),
        min_p=_one_of((1e-3, 0.05, 0.3, 1.0), rng) if _applies("min-p", case, rng) else 0.0,
        top_k=int(_one_of((1, 2, 3, 5, 20, 50, 600, 1e6), rng))
        if _applies("top-k", case, rng)
        else 0,
        top_p=_one_of((1e-6, 0.1, 0.5, 0.9, 0.95, 0.999), rng)
        if _applies("top-p", case, rng)
        else 1.0,
    )


def _temperature(case: Case, rng: np.random.Generator) -> float:
    if case.has("greedy") and rng.random() < 0.5:
        return 0.0
    if case.has("extreme temperature") and rng.random() < 0.5:
        return _one_of((1e-30, 0.01, 0.03, 0.05, 20.0, 100.0), rng)
    return float(rng.uniform(0.2, 2.5)) if case.has("temperature") else 1.0


def _applies(feature: str, case: Case, rng: np.random.Generator) -> bool:
    return case.has(feature) and rng.random() < 0.7


def _one_of(values: tuple[float, ...], rng: np.random.Generator) -> float:
    return values[rng.integers(len(values))]


def _bias(case: Case, rng: np.random.Generator) -> dict[int, float]:
    if not case.has("bias") or rng.random() < 0.3:
        return {}
    # Ids beyond the vocabulary are nobody's.
    token_ids = rng.integers(0, case.vocab_size + 1, size=rng.integers(1, 6)).tolist()
    return {
        token_id: -math.inf if rng.random() < 0.3 else float(rng.normal(scale=3))
        for token_id in token_ids
    }


def _logprobs(case: Case, rng: np.random.Generator) -> int | None:
    if not case.has("logprobs") or rng.random() < 0.3:
        return None
    return min(int(rng.choice((0, 1, 4, 20))), case.vocab_size)
