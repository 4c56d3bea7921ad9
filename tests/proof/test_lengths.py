"""Block verification accepts at least as much as probabilistic, on every pair that is tried."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kit.decode_law import random_model
from kit.proof.lengths import Lengths, bundled_lengths, expected_lengths


def law_of(model: Callable[[tuple[int, ...]], Tensor]) -> Callable[[tuple[int, ...]], Tensor]:
    return lambda text: model(text).double().log_softmax(dim=-1)


@st.composite
def pairs(draw: st.DrawFn) -> Lengths:
    vocab_size, num_drafts = draw(st.sampled_from([(2, 1), (2, 2), (2, 4), (3, 2), (3, 3), (5, 2)]))
    seeds = st.integers(0, 2**31)
    sharpness = st.sampled_from([0.1, 1.0, 3.0, 10.0])
    target = random_model(vocab_size, draw(seeds), draw(sharpness))
    other = random_model(vocab_size, draw(seeds), draw(sharpness))
    closeness = draw(st.floats(0, 1))
    banned = draw(st.one_of(st.none(), st.integers(0, vocab_size - 1)))

    def draft(text: tuple[int, ...]) -> Tensor:
        logits = closeness * target(text) + (1 - closeness) * other(text)
        return (
            logits if banned is None else logits.index_fill(0, torch.tensor([banned]), -torch.inf)
        )

    return expected_lengths(law_of(target), law_of(draft), num_drafts)


@settings(max_examples=150)
@given(pairs())
def test_block_accepts_at_least_as_much(lengths: Lengths) -> None:
    assert lengths.block >= lengths.probabilistic - 1e-12


def test_a_known_pair() -> None:
    """One draft token of two: p = (1/3, 2/3), q = (2/3, 1/3); the paper's first example."""
    target, draft = (torch.tensor(law).double().log() for law in ([1 / 3, 2 / 3], [2 / 3, 1 / 3]))
    lengths = expected_lengths(lambda _: target, lambda _: draft, 2)
    assert lengths.probabilistic == pytest.approx(10 / 9)
    assert lengths.block == pytest.approx(11 / 9)


def test_the_bundled_pair_gains() -> None:
    measured = bundled_lengths(num_spec_tokens=4, temperature=1.0, num_tokens=12)
    assert measured.num_drafts > 20
    assert measured.lengths.block > measured.lengths.probabilistic
    assert measured.gain > 0
