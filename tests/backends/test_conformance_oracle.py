"""The oracle of the conformance kit owes nothing to the code it judges, and its noise is right."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptor.backends.conformance import oracle
from acceptor.backends.conformance.corners import (
    POSITION,
    SEED_OF_HIGHEST_UNIFORM,
    SEED_OF_LOWEST_UNIFORM,
    WORDS,
)
from acceptor.backends.conformance.oracle.law import Adjustments, adjust
from acceptor.backends.conformance.oracle.race import Noise
from acceptor.core import Stream
from kit import philox as plain

VALUES = {
    "batch",
    "errors",
    "output",
    "policies",
    "sampling_params",
    "sampling_tensors",
    "token_counts",
}
SEEDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([2**63, 2**64 - 1]))


def test_the_oracle_shares_only_values_with_the_core() -> None:
    for path in Path(oracle.__file__).parent.glob("*.py"):
        shared = {module.rsplit(".", 1)[-1] for module in imported_from_outside(path)}
        assert shared <= VALUES, path.name


def imported_from_outside(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            yield str(node.module)


@given(SEEDS, st.integers(0, 2**31 - 1), st.integers(1, 20), st.integers(0, 200))
def test_each_candidate_has_the_word_of_the_contract(
    seed: int, position: int, draft_index: int, block: int
) -> None:
    got = Noise(seed).exponentials(Stream.RECOVER, position, draft_index, 1, 4 * block, 6)
    words = [
        plain.word(seed, position, draft_index, Stream.RECOVER, 1, 4 * block + place)
        for place in range(6)
    ]
    np.testing.assert_allclose(got, [-np.log1p(-(word + 0.5) / 2**32) for word in words])


@pytest.mark.parametrize(("rare", "expected"), [(0, 0), (1, 2**32 - 1)])
def test_rare_words_are_what_they_are_said_to_be(rare: int, expected: int) -> None:
    for (stream, level), words in WORDS.items():
        seed, candidate = words[rare]
        index = 0 if stream is Stream.TARGET else 1
        assert plain.word(seed, POSITION, index, stream, level, candidate) == expected


def test_rare_uniforms_are_the_lowest_and_the_highest() -> None:
    assert Noise(SEED_OF_LOWEST_UNIFORM).uniforms(POSITION, 1)[0] == 2.0**-24
    assert Noise(SEED_OF_HIGHEST_UNIFORM).uniforms(POSITION, 1)[0] == 1 - 2.0**-24


def test_adjusted_logits_are_float32_numbers_rounded_at_each_step() -> None:
    raw, one = np.array([0.1, -0.3, 7.0, 1.0]).astype(np.float32).astype(np.float64), np.float32(1)
    seen, counts = np.array([True, False, False, True]), np.array([2, 3, 0, 0])
    wanted = Adjustments({1: 0.2, 9: 5.0}, repetition=1.1, presence=0.7, frequency=0.3)
    x, (r, f, s, b) = raw.astype(np.float32), map(np.float32, (1.1, 0.3, 0.7, 0.2))
    expected = [x[0] / r - f * (one + one) - s, (x[1] + b) * r - f * (one + one + one) - s]
    expected += [x[2], x[3] / r]
    assert adjust(raw, wanted, seen, counts).tolist() == [float(value) for value in expected]
