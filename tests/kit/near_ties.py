"""Decisions of a chosen closeness, and outputs that decide them the other way."""

import math

import numpy as np
import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.conformance.oracle.race import TARGET, TOKEN_LEVEL, Noise
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    LogprobsMode,
    Probabilistic,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)

SEED, POSITION = 5, 9
PARAMS = SamplingTensors.stack([SamplingParams(seed=SEED)])


def logits_of_a_race(lead: float) -> Tensor:
    """Two tokens whose scores differ by the lead: [1, 2]."""
    exponentials = Noise(SEED).exponentials(TARGET, POSITION, 0, TOKEN_LEVEL, 0, 2)
    return torch.from_numpy(np.log(exponentials) - [0.0, lead]).float()[None]


def draw_near_a_filter(top_p: float) -> tuple[SampleBatch, SamplingTensors]:
    """Four tokens; a top-p of 0.6 keeps the third, and by a hair cuts the last one or keeps it."""
    params = SamplingParams(
        seed=SEED, top_p=top_p, logprobs=4, logprobs_mode=LogprobsMode.PROCESSED
    )
    logits = torch.tensor([[0.1, 0.05, 0.6, 0.25]]).log()
    batch = SampleBatch(logits=logits, positions=torch.tensor([POSITION]))
    return batch, SamplingTensors.stack([params])


def batch_near_its_uniform(distance: float) -> VerifyBatch:
    """A one-hot draft of token 0, whose log-probability lies so far above that of its uniform."""
    log_p = math.log(Noise(SEED).uniforms(POSITION, 1)[0]) + distance
    row = torch.tensor([log_p, math.log1p(-math.exp(log_p))]).float()
    return VerifyBatch(
        target_logits=torch.stack((row, row)),
        cu_num_logits=torch.tensor([0, 2]),
        draft_token_ids=torch.tensor([[0]]),
        positions=torch.tensor([POSITION]),
    )


def rejected(batch: VerifyBatch) -> VerifyOutput:
    """What follows a rejection: all that is left is token 1."""
    right = ReferenceSampler().verify(batch, PARAMS, Probabilistic())
    return evolve(
        right,
        token_ids=torch.tensor([[1, -1]]),
        num_accepted=torch.zeros_like(right.num_accepted),
    )
