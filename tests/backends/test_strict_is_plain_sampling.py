"""Strict verification emits what plain sampling with the same seed emits, whatever the drafter."""

import numpy as np
import pytest
import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    Policy,
    SampleBatch,
    SamplingTensors,
    Strict,
    TokenCounts,
    VerifyBatch,
)
from kit.answers import every_mix
from kit.decode_law import Tokens, random_model

SAMPLER = load_sampler("reference")
VOCAB_SIZE, NUM_TOKENS = 600, 14
TARGET, DRAFT = random_model(VOCAB_SIZE, seed=21, sharpness=3), random_model(VOCAB_SIZE, seed=22)


def close_draft(text: Tokens) -> Tensor:
    """A drafter that is right often enough for long accepted runs."""
    return TARGET(text) + DRAFT(text) / 2


def counts_of(tokens: Tokens) -> TokenCounts:
    counts = TokenCounts.empty(1, VOCAB_SIZE)
    counts.start(0, [1, 2, 3])
    counts.add(torch.tensor([0]), torch.tensor([tokens], dtype=torch.int64))
    return counts


def plain(params: SamplingTensors) -> Tokens:
    tokens: Tokens = ()
    while len(tokens) < NUM_TOKENS:
        batch = SampleBatch(
            logits=TARGET(tokens)[None],
            positions=torch.tensor([len(tokens)]),
            token_counts=counts_of(tokens),
        )
        tokens += (int(SAMPLER.sample(batch, params).token_ids),)
    return tokens


def speculative(params: SamplingTensors, policy: Policy, lengths: list[int]) -> Tokens:
    """Drafts of these lengths, one after the other, over and over."""
    tokens: Tokens = ()
    step = 0
    while len(tokens) < NUM_TOKENS:
        drafts = drafted(tokens, lengths[step % len(lengths)], params, policy)
        contexts = [tokens + drafts[:place] for place in range(len(drafts) + 1)]
        batch = VerifyBatch.dense(
            target_logits=torch.stack([TARGET(context) for context in contexts])[None],
            draft_token_ids=torch.tensor([drafts], dtype=torch.int64),
            positions=torch.tensor([len(tokens)]),
            token_counts=counts_of(tokens),
        )
        output = SAMPLER.verify(batch, params, policy)
        tokens += tuple(output.token_ids[0, : int(output.num_accepted) + 1].tolist())
        step += 1
    return tokens[:NUM_TOKENS]


def drafted(tokens: Tokens, length: int, params: SamplingTensors, policy: Policy) -> Tokens:
    drafts: Tokens = ()
    for place in range(1, length + 1):
        batch = SampleBatch(
            logits=close_draft(tokens + drafts)[None],
            positions=torch.tensor([len(tokens) + place - 1]),
            draft_index=place,
            draft_stream=policy.draft_stream,
        )
        drafts += (int(SAMPLER.sample(batch, params).token_ids),)
    return drafts


@pytest.mark.parametrize("coupled", [False, True])
def test_speculative_output_is_plain_output(coupled: bool) -> None:
    rng = np.random.default_rng(5)
    for asked in every_mix(15, VOCAB_SIZE):
        lengths = rng.integers(9, size=rng.integers(1, 5)).tolist()
        params = SamplingTensors.stack([asked])
        assert speculative(params, Strict(coupled=coupled), lengths) == plain(params)
