"""Filters of a row that is worked out by hand.

The processed logprobs of all tokens show the law that a row was drawn from: what was cut is -inf.
"""

import math

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.core import LogprobsMode, SampleBatch, SamplingParams, SamplingTensors

SAMPLER = load_sampler("reference")
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
