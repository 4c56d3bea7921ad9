"""Batches of every size, vocabulary and dtype."""

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Status,
    Strict,
    Synthetic,
    VerifyBatch,
)
from kit.requests import Answer, Layout, Request, answers, certain, request_of

SAMPLER = load_sampler("reference")
STRICT, PROBABILISTIC, BLOCK, ALWAYS = Strict(), Probabilistic(), Block(), Synthetic((1.0,) * 4)
by_policy = pytest.mark.parametrize(
    "policy", [STRICT, PROBABILISTIC, BLOCK, ALWAYS], ids=lambda policy: policy.name
)
VOCAB_SIZE = 5


def answer_to(request: Request, policy: Policy) -> Answer:
    return answers(SAMPLER, [request], policy, Layout())[0]


@by_policy
@pytest.mark.parametrize("max_spec_len", [0, 1, 3])
def test_no_requests_at_all(policy: Policy, max_spec_len: int) -> None:
    batch = VerifyBatch(
        target_logits=torch.zeros(0, VOCAB_SIZE),
        cu_num_logits=torch.zeros(1, dtype=torch.int64),
        draft_token_ids=torch.zeros(0, max_spec_len, dtype=torch.int64),
        positions=torch.zeros(0, dtype=torch.int64),
        draft_logits=torch.zeros(2, 3, VOCAB_SIZE),
    )
    output = SAMPLER.verify(batch, SamplingTensors.stack([]), policy)
    assert output.token_ids.shape == (0, max_spec_len + 1)
    assert output.num_accepted.shape == output.status.shape == (0,)
    drawn = SAMPLER.sample(
        SampleBatch(logits=torch.zeros(0, VOCAB_SIZE), positions=torch.zeros(0, dtype=torch.int64)),
        SamplingTensors.stack([]),
    )
    assert drawn.token_ids.shape == (0,)


@by_policy
def test_requests_without_drafts_among_others(policy: Policy) -> None:
    requests = [
        request_of((), certain(4)),
        request_of((1, 2), certain(1, 2, 3), certain(1, 2)),
        request_of((), certain(0)),
    ]
    assert answers(SAMPLER, requests, policy, Layout()) == [
        Answer((4,), 0, Status.OK),
        Answer((1, 2, 3), 2, Status.OK),
        Answer((0,), 0, Status.OK),
    ]


@by_policy
def test_a_vocabulary_of_one_token(policy: Policy) -> None:
    answer = answer_to(request_of((0, 0), torch.zeros(3, 1), torch.zeros(2, 1)), policy)
    assert answer == Answer((0, 0, 0), 2, Status.OK)


@by_policy
@pytest.mark.parametrize("vocab_size", [3, 511, 513, 1025, 50257])
def test_vocabularies_that_are_a_multiple_of_nothing(policy: Policy, vocab_size: int) -> None:
    last = vocab_size - 1
    target = certain(last, 1, last, vocab_size=vocab_size)
    draft = certain(last, 1, vocab_size=vocab_size)
    assert answer_to(request_of((last, 1), target, draft), policy) == Answer(
        (last, 1, last), 2, Status.OK
    )


@by_policy
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_gives_the_same_numbers_the_same_answer(
    policy: Policy, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(5)
    # Quarters are exact in all of them.
    target = (8 * torch.randn(3, VOCAB_SIZE, generator=generator)).round() / 4
    draft = (8 * torch.randn(2, VOCAB_SIZE, generator=generator)).round() / 4
    exact = request_of((1, 2), target, draft, logprobs=5)
    in_dtype = evolve(exact, target_logits=target.to(dtype), draft_logits=draft.to(dtype))
    assert answer_to(in_dtype, policy) == answer_to(exact, policy)


def test_the_largest_finite_logits_are_fine() -> None:
    target = torch.full((2, VOCAB_SIZE), -3.4e38)
    target[:, 2] = 3.4e38
    for policy in (STRICT, PROBABILISTIC):
        answer = answer_to(request_of((2,), target, torch.zeros(1, VOCAB_SIZE)), policy)
        assert answer == Answer((2, 2), 1, Status.OK)


def test_more_logits_than_32_bits_can_count() -> None:
    vocab_size, num_rows = 100_000, 50_000
    row = torch.zeros(1, vocab_size)
    row[0, -1] = 50.0
    batch = VerifyBatch(
        target_logits=row.expand(num_rows, vocab_size),
        cu_num_logits=torch.tensor([num_rows - 4, num_rows - 2, num_rows]),
        draft_token_ids=torch.tensor([[vocab_size - 1], [0]]),
        positions=torch.tensor([0, 0]),
    )
    params = SamplingTensors.stack([SamplingParams(seed=1)] * 2)
    output = SAMPLER.verify(batch, params, STRICT)
    assert output.token_ids.tolist() == [[vocab_size - 1] * 2, [vocab_size - 1, -1]]
