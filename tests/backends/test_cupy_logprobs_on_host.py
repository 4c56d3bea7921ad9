"""The CUDA kernel that reports logprobs, on the CPU, against the reference."""

from functools import partial

import pytest
import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import Job, sample_job, verify_job
from acceptor.backends.cupy_backend.logprobs import LogprobsLaunch, logprobs_variant
from acceptor.core import (
    Block,
    Logprobs,
    LogprobsMode,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    TokenCounts,
    Typical,
    VerifyBatch,
)
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_once("logprobs_on_host", tmp_path_factory.mktemp("logprobs"))


def run(build: Build, job: Job, params: SamplingTensors, token_ids: Tensor) -> Logprobs:
    assert params.num_logprobs is not None
    job.fields["token_ids"] = token_ids.data_ptr()
    launch = LogprobsLaunch.prepare(job, params, params.num_logprobs, 3, CPU)
    library = build(logprobs_variant(job))
    assert library.logprob_params_size() == len(launch.packed)
    library.run_logprobs(bytes(launch.packed), launch.num_ctas)
    return launch.logprobs


def assert_same(got: Logprobs, expected: Logprobs | None) -> None:
    assert expected is not None
    close = partial(torch.testing.assert_close, rtol=1e-5, atol=2e-6)
    close(got.emitted.view_as(expected.emitted), expected.emitted)
    close(got.top.view_as(expected.top), expected.top)
    assert torch.equal(got.top_token_ids.view_as(expected.top_token_ids), expected.top_token_ids)


def random_params(seed: int, num_reqs: int, top_n: int) -> SamplingTensors:
    """Raw and processed logprobs of greedy, filtered, biased and penalised requests."""
    return SamplingTensors.stack(
        [
            SamplingParams(
                seed=seed + i,
                temperature=(0.8, 0.0, 1.2, 0.6)[i % 4],
                top_k=(0, 40, 7)[i % 3],
                top_p=(1.0, 0.9)[i % 2],
                min_p=0.02 if i == 2 else 0.0,
                repetition_penalty=1.3 if i == 3 else 1.0,
                logit_bias={5: 2.0, 900: -1.0} if i in (0, 3) else {},
                logprobs=top_n,
                logprobs_mode=(LogprobsMode.PROCESSED, LogprobsMode.RAW)[(i // 2) % 2],
            )
            for i in range(num_reqs)
        ]
    )


def random_counts(noise: torch.Generator, num_slots: int, vocab_size: int) -> TokenCounts:
    return TokenCounts(
        prompt_mask=torch.rand(num_slots, vocab_size, generator=noise) < 0.1,
        output_counts=torch.randint(3, (num_slots, vocab_size), generator=noise).int(),
    )


@pytest.mark.parametrize(
    "policy", [Strict(), Probabilistic(), Block(), Typical()], ids=lambda p: p.name
)
def test_of_a_verification(build: Build, policy: Policy) -> None:
    noise = torch.Generator().manual_seed(1)
    num_reqs, num_drafts, vocab_size = 5, 3, 1301
    target = torch.randn(num_reqs * (num_drafts + 1), vocab_size, generator=noise) * 3
    target = target.to(torch.bfloat16)
    drafts = target.view(num_reqs, num_drafts + 1, -1)[:, :-1].float().argmax(-1)
    batch = VerifyBatch.dense(
        target_logits=target.view(num_reqs, num_drafts + 1, vocab_size),
        draft_token_ids=drafts,
        positions=torch.arange(num_reqs),
        token_counts=random_counts(noise, num_reqs, vocab_size),
    )
    params = random_params(7, num_reqs, 12)
    expected = load_sampler("reference").verify(batch, params, policy)
    job = verify_job(batch, params, policy, None)
    assert_same(run(build, job, params, expected.token_ids), expected.logprobs)


@pytest.mark.parametrize("top_n", [0, 1, 700])
def test_of_a_sample(build: Build, top_n: int) -> None:
    """More are asked for than a filter keeps: impossible tokens follow, by id."""
    noise = torch.Generator().manual_seed(2)
    logits = (torch.randn(4, 700, generator=noise) * 2).round()
    logits[:, 100:200] = -torch.inf
    logits[3, 0] = torch.nan
    batch = SampleBatch(
        logits=logits,
        positions=torch.arange(4),
        token_counts=random_counts(noise, 4, 700),
    )
    params = random_params(3, 4, top_n)
    expected = load_sampler("reference").sample(batch, params)
    job = sample_job(batch, params, None)
    assert_same(run(build, job, params, expected.token_ids), expected.logprobs)
