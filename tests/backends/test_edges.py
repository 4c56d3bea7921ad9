"""Every size, vocabulary and dtype has an answer, and so has bad input, with a status."""

import math

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.conformance.requests import Request
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
)
from kit.answers import BAD_VALUES, Answer, answers, certain, request_of, spoil

SAMPLER = load_sampler("reference")
STRICT, PROBABILISTIC, BLOCK, ALWAYS = Strict(), Probabilistic(), Block(), Synthetic((1.0,) * 4)
by_policy = pytest.mark.parametrize(
    "policy", [STRICT, PROBABILISTIC, BLOCK, ALWAYS], ids=lambda policy: policy.name
)
by_badness = pytest.mark.parametrize("how", BAD_VALUES)
VOCAB_SIZE = 5


def answer_to(request: Request, policy: Policy, id_dtype: str = "int64") -> Answer:
    return answers(SAMPLER, [request], policy, id_dtype)[0]


@by_badness
@by_policy
def test_a_bad_target_row_stops_the_request_before_it(how: str, policy: Policy) -> None:
    for row in range(3):
        target = certain(1, 2, 3)
        spoil(target[row], how)
        answer = answer_to(request_of((1, 2), target, certain(1, 2)), policy)
        assert answer == Answer((1, 2, 3)[:row], row, Status.TARGET_LOGITS_INVALID)
    if policy is not ALWAYS:
        # Behind a rejection the last row is never needed.
        answer = answer_to(request_of((1, 4), target), policy)
        assert answer == Answer((1, 2), 1, Status.OK)


@by_badness
@pytest.mark.parametrize("policy", [PROBABILISTIC, BLOCK], ids=lambda policy: policy.name)
def test_a_bad_draft_row_stops_the_request_before_it(how: str, policy: Policy) -> None:
    for row in range(2):
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
def test_a_draft_ends_at_padding(policy: Policy) -> None:
    for place, drafts in enumerate(((-1, 2), (1, -1))):
        answer = answer_to(request_of(drafts, certain(1, 2, 3), certain(1, 2)), policy)
        assert answer == Answer((1, 2)[: place + 1], place, Status.OK)
    target = torch.randn(4, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    short, padded = request_of((1, 2), target[:3]), request_of((1, 2, -1), target)
    assert answer_to(padded, policy) == answer_to(short, policy)


OUTSIDE = {
    "int32": (-2, -(2**31), VOCAB_SIZE, 2**31 - 1),
    "int64": (-2, 2**32 + 1, -(2**63), 2**63 - 1),
}


@by_policy
def test_an_id_outside_the_vocabulary_ends_the_draft_and_is_flagged(policy: Policy) -> None:
    for id_dtype, token_ids in OUTSIDE.items():
        for token_id in token_ids:
            request = request_of((1, token_id, 3), certain(1, 2, 3, 4), certain(1, 2, 3))
            answer = answer_to(request, policy, id_dtype)
            assert answer == Answer((1, 2), 1, Status.DRAFT_TOKEN_INVALID)


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
