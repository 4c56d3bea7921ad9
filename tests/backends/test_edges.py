"""What the conformance kit's batches have too seldom: ids of 64 bits, and no residual at all."""

import math

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
    Status,
    Strict,
    Synthetic,
    VerifyOutput,
)
from kit.batches import dense, stacked

POLICIES = (Strict(), Probabilistic(), Block(), Synthetic((1.0,)))


def verified(drafted: int, target: list[float], policy: Policy, num_reqs: int = 1) -> VerifyOutput:
    """One draft token of each request, all with the same logits and seeds of their own."""
    batch = dense(torch.tensor([[target] * 2] * num_reqs), [[drafted]] * num_reqs)
    return load_sampler("reference").verify(batch, stacked(num_reqs), policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("token_id", [2**32 + 1, -(2**32) + 1, -(2**63), 2**63 - 1])
def test_an_id_of_64_bits_is_not_taken_for_its_lower_half(token_id: int, policy: Policy) -> None:
    output = verified(token_id, [-math.inf, 0.0], policy)
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
    output = verified(1, [0.0, 9.0, 1.0, 0.0, 0.0], RoundsToNothing(), num_reqs=60)
    assert {*output.token_ids[:, 0].tolist()} == {0, 2, 3, 4}
    assert verified(1, [-math.inf, 0.0], RoundsToNothing()).token_ids[0, 0] == 1
