"""Filters, bias, penalties and logprobs of rows that are worked out by hand.

The processed logprobs of all tokens show the law that a row was drawn from: what was cut is -inf.
"""

import math
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.core import (
    LogprobsMode,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    TokenCounts,
)
from kit.answers import batch_of, request_of

SAMPLER = load_sampler("reference")
ACCEPT_ALL = Synthetic((1.0,) * 4)
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
    request = evolve(
        request_of(
            (2, 2),
            torch.tensor([[2.0, -1.0, 1.0]] * 3),
            repetition_penalty=2.0,
            frequency_penalty=0.5,
            presence_penalty=0.25,
            logprobs=3,
            logprobs_mode=LogprobsMode.PROCESSED,
        ),
        in_prompt=torch.tensor([True, False, False]),
        output_counts=torch.tensor([0, 2, 0]).int(),
    )
    logprobs = SAMPLER.verify(*batch_of([request]), ACCEPT_ALL).logprobs
    assert logprobs is not None
    # Token 0 is only in the prompt: 2 / 2. Token 1 twice in the output: -1 * 2 - 2 * 0.5 - 0.25.
    # Token 2 is drafted: 1, then 1 / 2 - 0.5 - 0.25, then 1 / 2 - 1 - 0.25.
    for place, third in enumerate((1.0, -0.25, -0.75)):
        expected = torch.tensor([1.0, -3.25, third]).log_softmax(dim=-1)
        shown = torch.empty(3).index_copy(
            0, logprobs.top_token_ids[0, place], logprobs.top[0, place]
        )
        assert shown.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_drafts_are_drawn_without_bias_and_penalties() -> None:
    params = SamplingParams(seed=1, logit_bias={0: -math.inf}, temperature=1.0)
    batch = SampleBatch(
        logits=torch.tensor([[50.0, 0.0]]), positions=torch.tensor([0]), draft_index=1
    )
    assert SAMPLER.sample(batch, SamplingTensors.stack([params])).token_ids.tolist() == [0]


def test_logprobs_are_there_iff_someone_asks() -> None:
    silent = request_of((), torch.zeros(1, 3), torch.zeros(0, 3))
    asking = evolve(silent, params=SamplingParams(seed=1, logprobs=0))
    assert SAMPLER.verify(*batch_of([silent]), Strict()).logprobs is None
    logprobs = SAMPLER.verify(*batch_of([silent, asking]), Strict()).logprobs
    assert logprobs is not None
    assert logprobs.emitted[1, 0].item() == pytest.approx(-math.log(3))
    assert logprobs.top.shape == (2, 1, 0)


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
