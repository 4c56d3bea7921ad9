"""Who finishes a strict request in the wide kernel, built by g++: what it reads and finds."""

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import Probabilistic, SamplingParams, SamplingTensors, Strict, VerifyBatch
from acceptor.core.output import VerifyOutput
from acceptor.tests.kit.cuda_batches import random_batch
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
NARROW = LaunchShape(group=0, num_ctas=3)
GROUPS = (1, 2, 5, 31)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_once("verify_on_host", tmp_path_factory.mktemp("wide"), lambda _: ["-DHAS_WIDE"])


def _same(got: VerifyOutput, expected: VerifyOutput) -> None:
    assert torch.equal(got.token_ids, expected.token_ids)
    assert torch.equal(got.num_accepted, expected.num_accepted)
    assert torch.equal(got.status, expected.status)


def _wide(group: int, num_reqs: int) -> LaunchShape:
    return LaunchShape(group=group, num_ctas=group * num_reqs)


def _dense(logits: torch.Tensor, drafts: torch.Tensor) -> VerifyBatch:
    positions = torch.arange(len(logits)) + 3
    return VerifyBatch.dense(target_logits=logits, draft_token_ids=drafts, positions=positions)


def _batch(logits: torch.Tensor, temperature: float) -> tuple[VerifyBatch, SamplingTensors]:
    """Drafts that a strict policy keeps mostly; [requests, rows, ids]."""
    num_reqs = len(logits)
    wishes = [SamplingParams(seed=i, temperature=temperature) for i in range(num_reqs)]
    params = SamplingTensors.stack(wishes)
    drafts = torch.zeros(num_reqs, logits.shape[1] - 1, dtype=torch.int64)
    for place in range(drafts.shape[1]):  # as many as its own samples tell
        batch = _dense(logits, drafts)
        tokens = load_sampler("reference").verify(batch, params, Strict()).token_ids
        drafts[:, place] = tokens[:, place].clamp(min=0)
    drafts[-1, -1] += 1
    return _dense(logits, drafts), params


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("temperature", [0.0, 0.05, 0.8])
def test_tokens_are_the_reference_s(build: Build, temperature: float, dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    noise = torch.Generator().manual_seed(1)
    logits = (2 * torch.randn(3, 4, 9208, generator=noise)).to(dtype)
    logits[:, 1] += 7 * (torch.rand(3, 9208, generator=noise) > 0.999)
    batch, params = _batch(logits, temperature)
    expected = load_sampler("reference").verify(batch, params, Strict())
    assert expected.num_accepted.tolist() == [3, 3, 2]
    library = build(verify_job(batch, params, Strict(), None).variant)
    for schedule, group in enumerate(GROUPS):
        library.set_schedule(schedule)
        _same(run(build, batch, params, Strict(), _wide(group, 3)), expected)
    library.set_schedule(0)


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 0.8])
def test_flawed_rows_ties_and_extreme_scores(build: Build, temperature: float) -> None:
    torch.set_num_threads(1)
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 6_160, generator=noise).clamp(max=1)  # many are the largest
    logits[1] = -torch.rand(3, 6_160, generator=noise) - 1
    logits[1, :, 5000], logits[1, :, 3000] = 0.0, -0.0
    logits[2, 1, 4000] = torch.nan
    logits[3, 0, 2_000] = torch.inf
    logits[4, 1] = -torch.inf
    logits[5, 1, :6_000] = -torch.inf
    batch, params = _batch(logits.to(torch.bfloat16), temperature)
    expected = run(build, batch, params, Strict(), NARROW)
    if temperature in {0.0, 0.8}:
        _same(expected, load_sampler("reference").verify(batch, params, Strict()))
    library = build(verify_job(batch, params, Strict(), None).variant)
    for schedule, group in enumerate(GROUPS):
        library.set_schedule(schedule)
        _same(run(build, batch, params, Strict(), _wide(group, 6)), expected)
    library.set_schedule(0)


def test_requests_of_other_lengths_and_temperatures(build: Build) -> None:
    torch.set_num_threads(1)
    for seed in range(3):
        batch, params = random_batch(seed, filtered=False, aligned=True, ragged=True)
        expected = load_sampler("reference").verify(batch, params, Strict())
        library = build(verify_job(batch, params, Strict(), None).variant)
        for schedule, group in enumerate(GROUPS):
            library.set_schedule(schedule)
            _same(run(build, batch, params, Strict(), _wide(group, batch.num_reqs)), expected)
        library.set_schedule(0)


def test_the_cta_that_finishes_may_read_less_than_others(build: Build) -> None:
    noise = torch.Generator().manual_seed(2)
    logits = (2 * torch.randn(2, 2, 30 * 512, generator=noise)).to(torch.bfloat16)
    batch, params = _batch(logits, 0.8)
    expected = load_sampler("reference").verify(batch, params, Strict())
    for group, share in ((2, 44), (4, 20), (7, 10), (9, 8)):
        shape = LaunchShape(group=group, num_ctas=2 * group, share=share)
        _same(run(build, batch, params, Strict(), shape), expected)


@pytest.mark.parametrize("vocab_size", [20480, 20477])
def test_blocks_are_dealt_out_alike_where_other_requests_have_fewer_rows(
    build: Build, vocab_size: int
) -> None:
    noise = torch.Generator().manual_seed(3)
    batch = VerifyBatch(
        target_logits=3 * torch.randn(6, vocab_size, generator=noise),
        draft_token_ids=torch.randint(vocab_size, (2, 3), generator=noise),
        cu_num_logits=torch.tensor([0, 4, 6], dtype=torch.int32),
        positions=torch.arange(2),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i) for i in range(2)])
    expected = load_sampler("reference").verify(batch, params, Strict())
    shape = LaunchShape(group=5, num_ctas=10, share=40)
    _same(run(build, batch, params, Strict(), shape), expected)


def test_blocks_are_dealt_out_alike_where_slots_are_looked_up(build: Build) -> None:
    noise = torch.Generator().manual_seed(4)
    logits = 3 * torch.randn(2, 4, 8192, generator=noise)
    batch = evolve(
        _dense(logits, torch.randint(8192, (2, 3), generator=noise)),
        draft_logits=torch.cat([logits[:, :3], logits[:, :3]]) + 1,
        slot_ids=torch.tensor([3, 0]),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i) for i in range(2)])
    expected = load_sampler("reference").verify(batch, params, Probabilistic())
    shape = LaunchShape(group=5, num_ctas=10, share=28)
    _same(run(build, batch, params, Probabilistic(), shape), expected)
