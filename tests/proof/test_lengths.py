"""Block verification accepts at least as much as probabilistic, on every pair that is tried.

Thresholds say exactly how many draft tokens are accepted in expectation; enumeration of all drafts
does the rest.
"""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acceptor.core import Block, DraftView, Probabilistic
from kit.decode_law import Logits, random_model


def expected_lengths(target: Logits, draft: Logits, num_drafts: int) -> list[float]:
    """Accepted tokens of a draft under probabilistic and block, over all drafts from nothing."""
    sums = torch.zeros(2, dtype=torch.float64)
    for text in product(range(len(target(()))), repeat=num_drafts):
        rows = [text[:place] for place in range(num_drafts + 1)]
        log_p, log_q = (
            torch.stack([model(row) for row in rows]).double().log_softmax(dim=-1)
            for model in (target, draft)
        )
        tokens = torch.tensor(text)
        mass = log_q[:-1].gather(1, tokens[:, None]).sum().exp()
        if mass > 0:
            sums += mass * lengths_of(DraftView(tokens, log_p, log_q[:-1], None))
    lengths: list[float] = sums.tolist()
    return lengths


def lengths_of(view: DraftView) -> Tensor:
    """Of one draft, over all acceptance uniforms."""
    one_by_one = Probabilistic().log_thresholds(view).clamp(max=0.0).exp()
    refused = 1 - Block().log_thresholds(view).clamp(max=0.0).exp()
    # Block accepts at least i tokens unless all tests from i on fail.
    all_fail = refused.flip(0).cumprod(dim=0)
    return torch.stack((one_by_one.cumprod(dim=0).sum(), (1 - all_fail).sum()))


@st.composite
def pairs(draw: st.DrawFn) -> list[float]:
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

    return expected_lengths(target, draft, num_drafts)


@settings(max_examples=60)
@given(pairs())
def test_block_accepts_at_least_as_much(lengths: list[float]) -> None:
    probabilistic, block = lengths
    assert block >= probabilistic - 1e-12


def test_a_known_pair() -> None:
    """One draft token of two: p = (1/3, 2/3), q = (2/3, 1/3); the paper's first example."""
    target, draft = (torch.tensor(law).double().log() for law in ([1 / 3, 2 / 3], [2 / 3, 1 / 3]))
    lengths = expected_lengths(lambda _: target, lambda _: draft, 2)
    assert lengths == pytest.approx([10 / 9, 11 / 9])
