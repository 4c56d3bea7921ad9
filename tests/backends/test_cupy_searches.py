"""Thresholds of rows whose counts leave them open, for adversarial logits and recipes."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    LogprobsMode,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    pack_allowed,
)
from kit.cuda_on_host import GXX
from kit.cupy_on_host import HostSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
REFERENCE = load_sampler("reference")
NUM_REQS = 2
KINDS = ("flat", "huge", "near", "nearer", "wide", "low", "few", "two", "peaks", "zeros", "small")


def rows_of(kind: str, vocab_size: int, noise: torch.Generator) -> Tensor:
    x = torch.randn(NUM_REQS, vocab_size, generator=noise)
    share = torch.rand(x.shape, generator=noise)
    kinds = {
        "flat": x,
        "huge": 1000 * x,
        "near": 20 + 1e-3 * x,
        "nearer": 5 + 1e-6 * x,
        "wide": x.sign() * 10 ** (9.5 * share - 8),
        "low": 3 * x - 50,
        "few": x.masked_fill(share < 0.7, -math.inf),
        "two": torch.where(x > 0, 1.0, 1.0000001),
        "peaks": -2 * share.log(),
        "zeros": x.clamp(max=0),
        "small": torch.where(share < 0.01, 1e-5 * x, x - 4),
    }
    return kinds[kind]


def params_of(rnd: random.Random, vocab_size: int) -> SamplingParams:
    wanted: dict[str, Any] = {"temperature": rnd.choice([1.0, 0.8, 0.05, 1e-3, 3.0])}
    if rnd.random() < 0.6:
        wanted["top_p"] = rnd.choice([0.9, 0.5, 0.1, 0.99, 0.999, 0.3])
    if rnd.random() < 0.4:
        wanted["top_k"] = rnd.choice([1, 5, 256, 257, 600, 2000])
    if rnd.random() < 0.3:
        wanted["min_p"] = rnd.choice([0.5, 0.05, 1e-3, 0.9])
    if rnd.random() < 0.4:
        wanted["repetition_penalty"] = rnd.choice([1.1, 0.9])
    if rnd.random() < 0.3:
        # So few that no ids are marked before rows are read, or more.
        ids = (rnd.randrange(vocab_size) for _ in range(rnd.choice([2, 40])))
        wanted["logit_bias"] = {i: rnd.choice([1.5, -2.0]) for i in ids}
    mode = rnd.choice(list(LogprobsMode))
    return SamplingParams(seed=rnd.getrandbits(60), logprobs=3, logprobs_mode=mode, **wanted)


def draws_of(kind: str, seed: int) -> tuple[SampleBatch, SamplingTensors]:
    rnd, noise = random.Random(f"{kind}{seed}"), torch.Generator().manual_seed(seed)  # noqa: S311
    # The last block is not whole; a CTA marks eight.
    vocab_size = rnd.choice([700, 3000, 17_000])
    dtype = rnd.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
    counts = TokenCounts.empty(NUM_REQS, vocab_size)
    seen = rnd.choice([0.02, 1.0])
    shape = NUM_REQS, vocab_size
    counts.prompt_mask.copy_(torch.rand(shape, generator=noise) < seen)
    counts.output_counts.copy_(torch.rand(shape, generator=noise) < seen / 2)
    allowed = torch.rand(shape, generator=noise) < 0.6
    batch = SampleBatch(
        logits=rows_of(kind, vocab_size, noise).to(dtype),
        positions=torch.arange(NUM_REQS) + seed,
        token_counts=counts,
        allowed_tokens=pack_allowed(allowed) if rnd.random() < 0.3 else None,
    )
    return batch, SamplingTensors.stack([params_of(rnd, vocab_size) for _ in range(NUM_REQS)])


@pytest.mark.parametrize("kind", KINDS)
def test_searches_find_what_the_reference_keeps(kind: str) -> None:
    torch.set_num_threads(1)
    for seed in range(12):
        batch, params = draws_of(kind, seed)
        expected = REFERENCE.sample(batch, params)
        assert expected.logprobs is not None
        # All of a row's CTAs look at once, or one alone.
        for room in (1000, 1):
            got = HostSampler(room=room, schedule=seed % 3).sample(batch, params)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, room)
            assert torch.equal(got.status, expected.status)
            assert got.logprobs is not None
            torch.testing.assert_close(
                got.logprobs.emitted, expected.logprobs.emitted, rtol=1e-5, atol=1e-4
            )
