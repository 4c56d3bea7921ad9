"""Temperature 0 computes no softmax, for anybody's sake."""

from typing import Any

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.core import Block, Policy, Probabilistic, SampleBatch, Strict, Synthetic
from kit.batches import dense, stacked
from kit.operators import OperatorLog

SAMPLER = load_sampler("reference")
LOSSLESS: list[Policy] = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
VOCAB_SIZE = 37
SOFTMAX_LIKE = {"cumsum", "exp", "exp_", "expm1", "log", "log1p", "sort"}
SOFTMAX_LIKE |= {"log_softmax", "logsumexp", "softmax"}


def verified(policy: Policy, **params: Any) -> OperatorLog:
    """What a verification of three requests calls."""
    noise = torch.Generator().manual_seed(6)
    target, draft = (torch.randn(3, num, VOCAB_SIZE, generator=noise) for num in (4, 3))
    batch = dense(target, [[1, 2, 3]] * 3, draft_logits=draft)
    log = OperatorLog()
    with log:
        SAMPLER.verify(batch, stacked(3, **params), policy)
    return log


@pytest.mark.parametrize("policy", [*LOSSLESS, Synthetic((0.5, 0.5))])
def test_an_all_greedy_verification_computes_no_softmax(policy: Policy) -> None:
    log = verified(policy, temperature=0.0, top_p=0.5, top_k=3, min_p=0.1)
    assert "argmax" in log.names()
    assert log.names(VOCAB_SIZE).isdisjoint(SOFTMAX_LIKE)


@pytest.mark.parametrize("draft_index", [None, 1])
def test_all_greedy_drawing_computes_no_softmax(draft_index: int | None) -> None:
    params = stacked(3, temperature=0, top_p=0.5)
    batch = SampleBatch(
        logits=torch.randn(3, VOCAB_SIZE),
        positions=torch.zeros(3, dtype=torch.int64),
        draft_index=draft_index,
    )
    with OperatorLog() as log:
        output = SAMPLER.sample(batch, params)
    assert torch.equal(output.token_ids, batch.logits.argmax(dim=-1))
    assert log.names(VOCAB_SIZE).isdisjoint(SOFTMAX_LIKE)


def test_the_log_would_show_a_softmax() -> None:
    assert "log_softmax" in verified(Probabilistic()).names(VOCAB_SIZE)
