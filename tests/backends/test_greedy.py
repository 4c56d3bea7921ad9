"""Temperature 0: the argmax, the lowest id on a tie, and no softmax for anybody's sake."""

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    Recipe,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
)
from kit.operators import OperatorLog
from kit.requests import Layout, Request, answers, verify_batch
from kit.strategies import batches, recipes

SAMPLER = load_sampler("reference")
LOSSLESS: list[Policy] = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
by_policy = pytest.mark.parametrize("policy", LOSSLESS, ids=lambda policy: policy.name)
VOCAB_SIZE = 37
SOFTMAX_LIKE = {
    "cumsum",
    "exp",
    "exp_",
    "expm1",
    "log",
    "log1p",
    "log_softmax",
    "logsumexp",
    "softmax",
    "sort",
}


def greedy(request: Request, draft: Recipe | None = None) -> Request:
    return evolve(request, params=evolve(request.params, temperature=0.0, draft=draft))


@by_policy
@settings(max_examples=15)
@given(batches(bad=False), recipes(), st.booleans())
def test_drafts_survive_iff_they_are_the_argmax(
    policy: Policy, requests: list[Request], draft: Recipe, one_hot: bool
) -> None:
    requests = [greedy(request, draft) for request in requests]
    plain = [evolve(r, params=SamplingParams(seed=r.params.seed, temperature=0)) for r in requests]
    for request, answer in zip(
        plain, answers(SAMPLER, plain, policy, Layout(one_hot_drafts=one_hot)), strict=True
    ):
        argmax = [row.tolist().index(row.amax()) for row in request.target_logits]
        drafts = request.draft_token_ids
        num_accepted = 0
        while num_accepted < len(drafts) and drafts[num_accepted] == argmax[num_accepted]:
            num_accepted += 1
        assert answer.num_accepted == num_accepted
        assert list(answer.token_ids) == argmax[: num_accepted + 1]


def greedy_batch(num_reqs: int = 3) -> list[Request]:
    generator = torch.Generator().manual_seed(6)
    return [
        Request(
            params=SamplingParams(seed=seed, temperature=0.0, top_p=0.5, top_k=3, min_p=0.1),
            target_logits=torch.randn(4, VOCAB_SIZE, generator=generator),
            draft_token_ids=(1, 2, 3),
            draft_logits=torch.randn(3, VOCAB_SIZE, generator=generator),
        )
        for seed in range(num_reqs)
    ]


@pytest.mark.parametrize(
    "policy", [*LOSSLESS, Synthetic((0.5, 0.5))], ids=lambda policy: policy.name
)
def test_an_all_greedy_verification_computes_no_softmax(policy: Policy) -> None:
    requests = greedy_batch()
    batch = verify_batch(requests, Layout())
    params = SamplingTensors.stack([request.params for request in requests])
    with OperatorLog() as log:
        SAMPLER.verify(batch, params, policy)
    assert "argmax" in log.names()
    assert over_the_vocabulary(log).isdisjoint(SOFTMAX_LIKE)


@pytest.mark.parametrize("draft_index", [None, 1])
def test_all_greedy_drawing_computes_no_softmax(draft_index: int | None) -> None:
    params = SamplingTensors.stack([SamplingParams(seed=1, temperature=0, top_p=0.5)] * 3)
    batch = SampleBatch(
        logits=torch.randn(3, VOCAB_SIZE),
        positions=torch.zeros(3, dtype=torch.int64),
        draft_index=draft_index,
    )
    with OperatorLog() as log:
        output = SAMPLER.sample(batch, params)
    assert torch.equal(output.token_ids, batch.logits.argmax(dim=-1))
    assert over_the_vocabulary(log).isdisjoint(SOFTMAX_LIKE)


def test_the_log_would_show_a_softmax() -> None:
    requests = [evolve(request, params=SamplingParams(seed=1)) for request in greedy_batch()]
    batch = verify_batch(requests, Layout())
    params = SamplingTensors.stack([request.params for request in requests])
    with OperatorLog() as log:
        SAMPLER.verify(batch, params, Probabilistic())
    assert "log_softmax" in over_the_vocabulary(log)


def over_the_vocabulary(log: OperatorLog) -> set[str]:
    """The operators that were given logits' worth of numbers."""
    return {
        name
        for call in log.calls
        for name in [call.name.split(".")[1].lstrip("_")]
        if any(VOCAB_SIZE in shape for shape in call.shapes)
    }


@by_policy
def test_a_tie_goes_to_the_lowest_id(policy: Policy) -> None:
    tied = torch.zeros(3, VOCAB_SIZE)
    tied[:, 5] = tied[:, 9] = 1.0
    request = greedy(
        Request(
            params=SamplingParams(seed=1),
            target_logits=tied,
            draft_token_ids=(5, 9),
            draft_logits=tied[:2],
        )
    )
    (answer,) = answers(SAMPLER, [request], policy, Layout())
    assert answer.token_ids == (5, 5)
