"""Every size, vocabulary and dtype has an answer, and so has bad input, with a status."""

import math

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    DraftView,
    Policy,
    Probabilistic,
    Recipe,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Status,
    Strict,
    Synthetic,
    VerifyBatch,
)
from kit.requests import Answer, Layout, Request, answers, certain, request_of
from kit.strategies import BAD_VALUES, spoil

SAMPLER = load_sampler("reference")
STRICT, PROBABILISTIC, BLOCK, ALWAYS = Strict(), Probabilistic(), Block(), Synthetic((1.0,) * 4)
by_policy = pytest.mark.parametrize(
    "policy", [STRICT, PROBABILISTIC, BLOCK, ALWAYS], ids=lambda policy: policy.name
)
by_badness = pytest.mark.parametrize("how", BAD_VALUES)
VOCAB_SIZE = 5


def answer_to(request: Request, policy: Policy, layout: Layout | None = None) -> Answer:
    return answers(SAMPLER, [request], policy, layout or Layout())[0]


@by_badness
@by_policy
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_bad_target_row_stops_the_request_before_it(how: str, policy: Policy, row: int) -> None:
    target = certain(1, 2, 3)
    spoil(target[row], how)
    answer = answer_to(request_of((1, 2), target, certain(1, 2)), policy)
    assert answer == Answer((1, 2, 3)[:row], row, Status.TARGET_LOGITS_INVALID)


@by_badness
@pytest.mark.parametrize("policy", [STRICT, PROBABILISTIC, BLOCK], ids=lambda policy: policy.name)
def test_a_bad_target_row_behind_a_rejection_is_never_needed(how: str, policy: Policy) -> None:
    target = certain(1, 2, 3)
    spoil(target[2], how)
    answer = answer_to(request_of((1, 4), target), policy)
    assert answer == Answer((1, 2), 1, Status.OK)


@by_badness
@pytest.mark.parametrize("policy", [PROBABILISTIC, BLOCK], ids=lambda policy: policy.name)
@pytest.mark.parametrize("row", [0, 1])
def test_a_bad_draft_row_stops_the_request_before_it(how: str, policy: Policy, row: int) -> None:
    draft = certain(1, 2)
    spoil(draft[row], how)
    answer = answer_to(request_of((1, 2), certain(1, 2, 3), draft), policy)
    assert answer == Answer((1, 2, 3)[:row], row, Status.DRAFT_LOGITS_INVALID)


@by_badness
def test_draft_rows_that_a_policy_does_not_ask_for_may_be_bad(how: str) -> None:
    draft = torch.zeros(2, VOCAB_SIZE)
    spoil(draft[0], how)
    request = request_of((1, 2), certain(1, 2, 3), draft)
    everything = Answer((1, 2, 3), 2, Status.OK)
    assert answer_to(request, STRICT) == everything
    assert answer_to(request, ALWAYS) == everything
    one_hot = evolve(request, params=evolve(request.params, draft=Recipe(temperature=0)))
    assert answer_to(one_hot, PROBABILISTIC) == everything
    greedy = evolve(request, params=evolve(request.params, temperature=0.0, draft=Recipe()))
    assert answer_to(greedy, PROBABILISTIC) == everything


@by_policy
@pytest.mark.parametrize("place", [0, 1])
def test_a_draft_ends_at_padding(policy: Policy, place: int) -> None:
    drafts = ((-1, 2), (1, -1))[place]
    answer = answer_to(request_of(drafts, certain(1, 2, 3), certain(1, 2)), policy)
    assert answer == Answer((1, 2)[: place + 1], place, Status.OK)


@by_policy
def test_a_draft_that_ends_early_is_a_shorter_draft(policy: Policy) -> None:
    target = torch.randn(4, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    short = request_of((1, 2), target[:3])
    padded = request_of((1, 2, -1), target)
    assert answer_to(padded, policy) == answer_to(short, policy)


@by_policy
@pytest.mark.parametrize(
    ("token_id", "id_dtype"),
    [
        *[(token_id, torch.int32) for token_id in (-2, -(2**31), VOCAB_SIZE, 2**31 - 1)],
        *[(token_id, torch.int64) for token_id in (-2, 2**32 + 1, -(2**63), 2**63 - 1)],
    ],
)
def test_an_id_outside_the_vocabulary_ends_the_draft_and_is_flagged(
    policy: Policy, token_id: int, id_dtype: torch.dtype
) -> None:
    layout = Layout(id_dtype=id_dtype)
    request = request_of((1, token_id, 3), certain(1, 2, 3, 4), certain(1, 2, 3))
    assert answer_to(request, policy, layout) == Answer((1, 2), 1, Status.DRAFT_TOKEN_INVALID)


def test_behind_an_id_outside_the_vocabulary_the_target_is_drawn_from() -> None:
    """From p with the TARGET stream: as if nothing had been drafted there."""
    target = torch.randn(2, VOCAB_SIZE, generator=torch.Generator().manual_seed(2))
    for seed in range(20):
        params = SamplingParams(seed=seed)
        flagged = evolve(request_of((99,), target), params=params)
        plain = evolve(request_of((), target[:1]), params=params)
        got = answer_to(flagged, PROBABILISTIC).token_ids
        assert got == answer_to(plain, PROBABILISTIC).token_ids


@pytest.mark.parametrize("policy", [PROBABILISTIC, BLOCK], ids=lambda policy: policy.name)
def test_a_draft_that_the_draft_never_gives_is_accepted_iff_the_target_may_give_it(
    policy: Policy,
) -> None:
    never = certain(0)
    possible = request_of((1,), torch.tensor([[-9.0, -8.0, 5, 5, 5]] * 2), never)
    assert answer_to(possible, policy).num_accepted == 1
    impossible = request_of((1,), torch.cat((certain(2), certain(3))), never)
    assert answer_to(impossible, policy) == Answer((2,), 0, Status.OK)


def test_where_p_and_q_agree_every_draft_is_accepted() -> None:
    logits = torch.randn(1, VOCAB_SIZE, generator=torch.Generator().manual_seed(4))
    for seed in range(50):
        request = request_of((1,), torch.cat((logits, logits)), logits)
        request = evolve(request, params=SamplingParams(seed=seed))
        assert answer_to(request, PROBABILISTIC).num_accepted == 1


@frozen
class RoundsToNothing(Probabilistic):
    """Rejects although no residual is left, as rounding might."""

    def log_thresholds(self, view: DraftView) -> Tensor:
        return torch.full((view.num_draft_tokens,), -math.inf, dtype=torch.float64)

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        return torch.full_like(view.target_log_probs[row], -math.inf)


def test_without_a_residual_the_rejected_token_is_not_emitted_by_accident() -> None:
    target = torch.tensor([[0.0, 9.0, 1.0, 0.0, 0.0]] * 2)
    emitted: set[int] = set()
    for seed in range(60):
        request = evolve(request_of((1,), target), params=SamplingParams(seed=seed))
        emitted.update(answer_to(request, RoundsToNothing()).token_ids)
    assert emitted == {0, 2, 3, 4}
    assert answer_to(request_of((1,), certain(1, 2)), RoundsToNothing()).token_ids == (1,)


@by_badness
@pytest.mark.parametrize(
    ("draft_index", "status"),
    [(None, Status.TARGET_LOGITS_INVALID), (1, Status.DRAFT_LOGITS_INVALID)],
)
def test_a_bad_row_draws_nothing(how: str, draft_index: int | None, status: Status) -> None:
    logits = certain(1, 2, 3)
    spoil(logits[1], how)
    batch = SampleBatch(
        logits=logits, positions=torch.zeros(3, dtype=torch.int64), draft_index=draft_index
    )
    for temperature in (0.0, 1.0):
        params = [SamplingParams(seed=1, temperature=temperature, logprobs=2, top_p=0.9)] * 3
        output = SAMPLER.sample(batch, SamplingTensors.stack(params))
        assert output.token_ids.tolist() == [1, -1, 3]
        assert output.status.tolist() == [Status.OK, status, Status.OK]
        if output.logprobs is not None:
            assert output.logprobs.top_token_ids[1].tolist() == [[-1, -1]]
            assert output.logprobs.emitted[1].item() == -math.inf


def test_banning_every_token_is_a_row_without_any() -> None:
    bans = dict.fromkeys(range(VOCAB_SIZE), -math.inf)
    request = request_of((1,), torch.zeros(2, VOCAB_SIZE), logit_bias=bans)
    assert answer_to(request, PROBABILISTIC) == Answer((), 0, Status.TARGET_LOGITS_INVALID)


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
