"""The reference beyond the conformance kit: no softmax at 0, ids of 64 bits, no residual at all."""

import math
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    DraftView,
    Policy,
    Probabilistic,
    SampleBatch,
    Status,
    Strict,
    Synthetic,
    VerifyOutput,
)
from kit.batches import dense, stacked
from kit.operators import OperatorLog

SAMPLER = load_sampler("reference")
LOSSLESS: list[Policy] = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
VOCAB_SIZE = 37
SOFTMAX_LIKE = {"cumsum", "exp", "exp_", "expm1", "log", "log1p", "sort"}
SOFTMAX_LIKE |= {"log_softmax", "logsumexp", "softmax"}


def verified(policy: Policy, **params: Any) -> OperatorLog:
    """The operators that a verification of three requests calls."""
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
    logits, positions = torch.randn(3, VOCAB_SIZE), torch.zeros(3, dtype=torch.int64)
    batch = SampleBatch(logits=logits, positions=positions, draft_index=draft_index)
    with OperatorLog() as log:
        output = SAMPLER.sample(batch, params)
    assert torch.equal(output.token_ids, batch.logits.argmax(dim=-1))
    assert log.names(VOCAB_SIZE).isdisjoint(SOFTMAX_LIKE)


def test_the_log_would_show_a_softmax() -> None:
    assert "log_softmax" in verified(Probabilistic()).names(VOCAB_SIZE)


def emitted(drafted: int, target: list[float], policy: Policy, num_reqs: int = 1) -> VerifyOutput:
    """One draft token of each request, all with the same logits and seeds of their own."""
    batch = dense(torch.tensor([[target] * 2] * num_reqs), [[drafted]] * num_reqs)
    return SAMPLER.verify(batch, stacked(num_reqs), policy)


@pytest.mark.parametrize("policy", [*LOSSLESS, Synthetic((1.0,))])
@pytest.mark.parametrize("token_id", [2**32 + 1, -(2**32) + 1, -(2**63), 2**63 - 1])
def test_an_id_of_64_bits_is_not_taken_for_its_lower_half(token_id: int, policy: Policy) -> None:
    output = emitted(token_id, [-math.inf, 0.0], policy)
    assert output.token_ids.tolist() == [[1, -1]]
    assert output.status.tolist() == [Status.DRAFT_TOKEN_INVALID]


@frozen
class RoundsToNothing(Probabilistic):
    """Rejects although no residual is left, as rounding might."""

    def log_thresholds(self, view: DraftView) -> Tensor:
        return torch.full((view.num_draft_tokens,), -math.inf, dtype=torch.float64)

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        return torch.full_like(view.target_log_probs[row], -math.inf)


def test_without_a_residual_the_rejected_token_is_not_emitted_by_accident() -> None:
    output = emitted(1, [0.0, 9.0, 1.0, 0.0, 0.0], RoundsToNothing(), num_reqs=60)
    assert {*output.token_ids[:, 0].tolist()} == {0, 2, 3, 4}
    assert emitted(1, [-math.inf, 0.0], RoundsToNothing()).token_ids[0, 0] == 1
