"""Filters, bias, penalties and logprobs against brute force in NumPy, through the sampler's output.

The processed logprobs of all tokens show the law that a row was drawn from: what was cut is -inf.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    LogprobsMode,
    Policy,
    Probabilistic,
    Recipe,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    TokenCounts,
)
from kit.exact_top_p import EXACT_ROWS, ExactRow, params_of, sample_batch
from kit.oracle import Floats, Row, adjusted, row_of
from kit.requests import Answer, Layout, Request, answers
from kit.strategies import requests

SAMPLER = load_sampler("reference")
ACCEPT_ALL = Synthetic((1.0,) * 4)
POLICIES: list[Policy] = [Strict(), Strict(coupled=True), Probabilistic(), Block(), ACCEPT_ALL]
VOCAB_SIZE = 12
# A cut whose two sides are this close may go either way in other arithmetic.
NEAR_TIE = 1e-9


def log(probs: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(probs)


def assert_close(got: Floats, expected: Floats) -> None:
    """As close as float32 can be."""
    np.testing.assert_allclose(got, expected, rtol=3e-7, atol=1e-6)


def processed_row(logits: Floats, params: SamplingParams) -> Row:
    """What a row's processed logprobs are the logarithm of."""
    if params.temperature == 0:
        params = SamplingParams()
    return row_of(logits, params)


def shown(answer: Answer, place: int) -> Floats:
    """The logprobs of all tokens at a place, by id."""
    by_id = np.full(len(answer.top[place]), np.nan)
    by_id[list(answer.top_token_ids[place])] = answer.top[place]
    return by_id


def everything(request: Request, mode: LogprobsMode) -> Request:
    vocab_size = request.target_logits.shape[1]
    return evolve(request, params=evolve(request.params, logprobs=vocab_size, logprobs_mode=mode))


@settings(max_examples=80)
@given(requests(VOCAB_SIZE, VOCAB_SIZE, bad=False), st.booleans())
def test_processed_logprobs_are_the_law_of_each_row(request_: Request, one_hot: bool) -> None:
    request = everything(request_, LogprobsMode.PROCESSED)
    rows = []
    for place in range(len(request.draft_token_ids) + 1):
        seen = (*request.output, *request.draft_token_ids[:place])
        raw = request.target_logits[place].double().numpy()
        logits = adjusted(raw, request.params, request.prompt, seen)
        assume(logits.max() > -np.inf)
        rows.append(processed_row(logits, request.params))
    assume(min(row.margin for row in rows) > NEAR_TIE)
    (answer,) = answers(SAMPLER, [request], ACCEPT_ALL, Layout(one_hot_drafts=one_hot))
    assert answer.num_accepted == len(request.draft_token_ids)
    for place, row in enumerate(rows):
        by_id = shown(answer, place)
        assert (np.isneginf(by_id) == (row.probs == 0)).all()
        assert_close(by_id, log(row.probs))
        assert answer.logprobs[place] == by_id[answer.token_ids[place]]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=15)
@given(request_=requests(VOCAB_SIZE, VOCAB_SIZE, bad=False))
def test_raw_logprobs_are_the_model_s_under_every_policy(policy: Policy, request_: Request) -> None:
    request = everything(request_, LogprobsMode.RAW)
    (answer,) = answers(SAMPLER, [request], policy, Layout())
    for place, token_id in enumerate(answer.token_ids):
        raw = request.target_logits[place].double().numpy()
        expected = log(row_of(raw, Recipe()).probs)
        assert_close(shown(answer, place), expected)
        assert answer.logprobs[place] == pytest.approx(expected[token_id], rel=3e-7, abs=1e-6)


@settings(max_examples=30)
@given(request_=requests(VOCAB_SIZE, VOCAB_SIZE, bad=False), top_n=st.integers(0, VOCAB_SIZE))
def test_the_most_likely_come_first_and_ties_by_id(request_: Request, top_n: int) -> None:
    request = evolve(request_, params=evolve(request_.params, logprobs=top_n))
    full = everything(request_, request_.params.logprobs_mode)
    (answer,) = answers(SAMPLER, [request], ACCEPT_ALL, Layout())
    (all_tokens,) = answers(SAMPLER, [full], ACCEPT_ALL, Layout())
    for place, top_ids in enumerate(answer.top_token_ids):
        by_id = shown(all_tokens, place)
        order = sorted(range(VOCAB_SIZE), key=lambda v: (-by_id[v], v))
        assert list(answer.top[place]) == [by_id[v] for v in order[:top_n]]
        # float32 may tie what float64 tells apart; then either order is true.
        if len(set(by_id)) == VOCAB_SIZE:
            assert list(top_ids) == order[:top_n]


WORKED = torch.tensor([[2.0, 1.0, 1.0, 0.0, -1.0]])
KEPT = {
    "top-k keeps ties": (SamplingParams(top_k=2), [0, 1, 2]),
    "top-k 1 is the largest": (SamplingParams(top_k=1), [0]),
    "top-k beyond the vocabulary": (SamplingParams(top_k=99), [0, 1, 2, 3, 4]),
    "top-p keeps ties": (SamplingParams(top_p=0.6), [0, 1, 2]),
    "top-p keeps one token at least": (SamplingParams(top_p=1e-30), [0]),
    "min-p 1 keeps the largest": (SamplingParams(min_p=1.0), [0]),
    "min-p is relative": (SamplingParams(min_p=0.14), [0, 1, 2]),
    # After min-p three tokens are left; top-p counts their mass only.
    "cuts renormalise": (SamplingParams(min_p=0.3, top_p=0.57), [0]),
    # The first token alone has 0.576 of what top-k leaves, though 0.496 of everything.
    "top-k comes before top-p": (SamplingParams(top_k=2, top_p=0.55), [0]),
    "temperature comes before top-p": (SamplingParams(temperature=0.5, top_p=0.7), [0]),
    "a banned token": (SamplingParams(logit_bias={0: -math.inf}, top_k=1), [1, 2]),
    "a bias beyond the vocabulary": (SamplingParams(logit_bias={7: 9.0}, top_k=1), [0]),
}


@pytest.mark.parametrize(("params", "kept"), KEPT.values(), ids=KEPT)
def test_worked_cuts(params: SamplingParams, kept: list[int]) -> None:
    asked = evolve(params, seed=1, logprobs=5, logprobs_mode=LogprobsMode.PROCESSED)
    batch = SampleBatch(logits=WORKED, positions=torch.tensor([0]))
    output = SAMPLER.sample(batch, SamplingTensors.stack([asked]))
    assert output.logprobs is not None
    finite = output.logprobs.top[0, 0].isfinite()
    assert sorted(output.logprobs.top_token_ids[0, 0, finite].tolist()) == kept
    assert output.logprobs.top[0, 0].exp().sum().item() == pytest.approx(1, abs=1e-6)


def test_worked_penalties() -> None:
    """Row by row: repetition first, then frequency and presence; drafts before the row count."""
    request = Request(
        params=SamplingParams(
            seed=1,
            repetition_penalty=2.0,
            frequency_penalty=0.5,
            presence_penalty=0.25,
            logprobs=3,
            logprobs_mode=LogprobsMode.PROCESSED,
        ),
        target_logits=torch.tensor([[2.0, -1.0, 1.0]] * 3),
        draft_token_ids=(2, 2),
        draft_logits=torch.zeros(2, 3),
        prompt=(0,),
        output=(1, 1),
    )
    (answer,) = answers(SAMPLER, [request], ACCEPT_ALL, Layout())
    # Token 0 is only in the prompt: 2 / 2. Token 1 twice in the output: -1 * 2 - 2 * 0.5 - 0.25.
    # Token 2 is drafted: 1, then 1 / 2 - 0.5 - 0.25, then 1 / 2 - 1 - 0.25.
    for place, third in enumerate((1.0, -0.25, -0.75)):
        expected = torch.tensor([1.0, -3.25, third]).log_softmax(dim=-1).tolist()
        assert shown(answer, place).tolist() == pytest.approx(expected, abs=1e-6)


def test_drafts_are_drawn_without_bias_and_penalties() -> None:
    params = SamplingParams(seed=1, logit_bias={0: -math.inf}, temperature=1.0)
    batch = SampleBatch(
        logits=torch.tensor([[50.0, 0.0]]), positions=torch.tensor([0]), draft_index=1
    )
    assert SAMPLER.sample(batch, SamplingTensors.stack([params])).token_ids.tolist() == [0]


def test_logprobs_are_there_iff_someone_asks() -> None:
    request = Request(
        params=SamplingParams(seed=1),
        target_logits=torch.zeros(1, 3),
        draft_token_ids=(),
        draft_logits=torch.zeros(0, 3),
    )
    asking = evolve(request, params=SamplingParams(seed=1, logprobs=0))
    assert answers(SAMPLER, [request], Strict(), Layout())[0].logprobs == ()
    silent, answered = answers(SAMPLER, [request, asking], Strict(), Layout())
    assert silent.logprobs == ()
    assert answered.logprobs == pytest.approx((-math.log(3),))
    assert answered.top == ((),)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("row", EXACT_ROWS, ids=lambda row: f"{row.top_p} of {len(row.levels)}")
def test_top_p_ends_where_its_mass_is_met_exactly(row: ExactRow, dtype: torch.dtype) -> None:
    logprobs = SAMPLER.sample(sample_batch(row, dtype), params_of(row)).logprobs
    assert logprobs is not None
    kept = logprobs.top_token_ids[0, 0][logprobs.top[0, 0].isfinite()]
    assert sorted(kept.tolist()) == row.kept.nonzero().flatten().tolist()


PROCESSED = {"logprobs": 3, "logprobs_mode": LogprobsMode.PROCESSED}
LARGEST = torch.finfo(torch.float32).max
SEEN = TokenCounts(torch.tensor([[True, False, False]]), torch.tensor([[0, 2, 0]]).int())


@pytest.mark.parametrize(
    ("logits", "asked", "drawn"),
    [
        # Divided by a penalty below 1, what overflows is +inf: the row is invalid.
        ([LARGEST, 0.0, 1.0], {"repetition_penalty": 0.5}, None),
        # Multiplied by one above 1, it is -inf: the token is banned.
        ([-LARGEST, -LARGEST, -1e38], {"repetition_penalty": 2.0}, [2]),
        ([-LARGEST, -LARGEST, -math.inf], {"repetition_penalty": 2.0}, None),
        # A sum is rounded to float32 before the next operation.
        ([1.0, 2.0**24, 2.0**24], {"frequency_penalty": -0.5, "presence_penalty": 1.0}, [2]),
        # The difference to the largest overflows, so that even this temperature leaves nothing.
        ([LARGEST, -LARGEST, -LARGEST], {"temperature": 1e6, **PROCESSED}, [0]),
    ],
)
def test_adjusted_logits_are_float32_and_overflow_as_it_does(
    logits: list[float], asked: dict[str, Any], drawn: list[int] | None
) -> None:
    params = SamplingTensors.stack([SamplingParams(**{"seed": 1, "temperature": 0.0} | asked)])
    batch = SampleBatch(
        logits=torch.tensor([logits]), positions=torch.tensor([0]), token_counts=SEEN
    )
    output = SAMPLER.sample(batch, params)
    assert output.token_ids.tolist() == ([-1] if drawn is None else drawn)
    assert output.status.tolist() == [int(drawn is None)]
    assert bool(output.logprobs is None or output.logprobs.top[0, 0, 1:].isinf().all())
