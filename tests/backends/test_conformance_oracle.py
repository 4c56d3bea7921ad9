"""The oracle of the conformance kit owes nothing to the code it judges, and its noise is right."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acceptor.backends.conformance import oracle
from acceptor.backends.conformance.corners import (
    POSITION,
    SEED_OF_HIGHEST_UNIFORM,
    SEED_OF_LOWEST_UNIFORM,
    WORDS,
)
from acceptor.backends.conformance.oracle.law import Adjustments, adjust
from acceptor.backends.conformance.oracle.race import exponentials, uniforms
from acceptor.core import Level, Stream
from acceptor.core.randomness import exponential, random_words

VALUES = {
    "batch",
    "errors",
    "output",
    "policies",
    "sampling_params",
    "sampling_tensors",
    "token_counts",
}


def test_the_oracle_shares_only_values_with_the_core() -> None:
    for path in Path(oracle.__file__).parent.glob("*.py"):
        shared = {module.rsplit(".", 1)[-1] for module in imported_from_outside(path)}
        assert shared <= VALUES, path.name


def imported_from_outside(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            yield str(node.module)


def words_of(seed: int, position: int, index: int, *rest: Any) -> Tensor:
    """The core's words of some candidates in a race, of a stream at a level: [num_candidates]."""
    seeds = torch.tensor([seed - 2**64 * (seed >= 2**63)])
    indices = torch.tensor([0 if rest[0] is Stream.TARGET else index])
    return random_words(seeds, torch.tensor([position]), indices, *rest)[0]


@given(
    seed=st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([2**63, 2**64 - 1])),
    position=st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([2**31, 2**32 - 1])),
    draft_index=st.integers(1, 2**32 - 1),
    race=st.tuples(st.sampled_from(Stream), st.sampled_from(Level)),
    first=st.integers(0, 2**30),
    count=st.integers(1, 11),
)
def test_each_candidate_has_the_word_of_the_contract(
    seed: int, position: int, draft_index: int, race: tuple[Stream, Level], first: int, count: int
) -> None:
    candidates = torch.arange(4 * first, 4 * first + count)[None]
    expected = exponential(words_of(seed, position, draft_index, *race, candidates))
    got = exponentials(seed, race[0], position, draft_index, race[1], 4 * first, count)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize(("rare", "expected"), [(0, 0), (1, 2**32 - 1)])
def test_rare_words_are_what_they_are_said_to_be(rare: int, expected: int) -> None:
    for race, words in WORDS.items():
        seed, candidate = words[rare]
        assert words_of(seed, POSITION, 1, *race, torch.arange(4)[None])[candidate] == expected


def test_rare_uniforms_are_the_lowest_and_the_highest() -> None:
    assert uniforms(SEED_OF_LOWEST_UNIFORM, POSITION, 1)[0] == 2.0**-24
    assert uniforms(SEED_OF_HIGHEST_UNIFORM, POSITION, 1)[0] == 1 - 2.0**-24


def test_adjusted_logits_are_float32_numbers_rounded_at_each_step() -> None:
    raw, one = np.array([0.1, -0.3, 7.0, 1.0]).astype(np.float32).astype(np.float64), np.float32(1)
    seen, counts = np.array([True, False, False, True]), np.array([2, 3, 0, 0])
    wanted = Adjustments({1: 0.2, 9: 5.0}, repetition=1.1, presence=0.7, frequency=0.3)
    x, (r, f, s, b) = raw.astype(np.float32), map(np.float32, (1.1, 0.3, 0.7, 0.2))
    expected = [x[0] / r - f * (one + one) - s, (x[1] + b) * r - f * (one + one + one) - s]
    expected += [x[2], x[3] / r]
    assert adjust(raw, wanted, seen, counts).tolist() == [float(value) for value in expected]
