"""The kernels that read pieces of rows and decide, built by g++, return the reference's tokens."""

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import SamplingParams, SamplingTensors, Strict, VerifyBatch
from acceptor.tests.kit.cuda_batches import random_batch
from acceptor.tests.kit.cuda_on_host import GXX, Build, run
from acceptor.tests.kit.pieces_on_host import build_pieces

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_pieces(tmp_path_factory.mktemp("pieces"))


def _in_parts(batch: VerifyBatch, parts: int) -> LaunchShape:
    num_ctas = parts * (batch.max_spec_len + 1) * batch.num_reqs
    return LaunchShape(group=parts, num_ctas=num_ctas, by_pieces=True)


def _batch(seed: int, *, greedy: bool, aligned: bool) -> tuple[VerifyBatch, SamplingTensors]:
    ragged = not aligned or seed % 2 == 1
    batch, params = random_batch(seed, filtered=False, aligned=aligned, ragged=ragged)
    if greedy:
        params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.0) for i in range(5)])
    return batch, params


def _check(build: Build, batch: VerifyBatch, params: SamplingTensors, parts: int) -> None:
    expected = load_sampler("reference").verify(batch, params, Strict())
    got = run(build, batch, params, Strict(), _in_parts(batch, parts))
    assert torch.equal(got.token_ids, expected.token_ids), parts
    assert torch.equal(got.num_accepted, expected.num_accepted)
    assert torch.equal(got.status, expected.status)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_pieces_of_rows_give_the_reference_s_tokens(
    build: Build, greedy: bool, aligned: bool
) -> None:
    torch.set_num_threads(1)
    for seed in range(4):
        batch, params = _batch(seed, greedy=greedy, aligned=aligned)
        library = build(verify_job(batch, params, Strict(), None).variant)
        for schedule, parts in enumerate((1, 3, 5)):
            library.set_schedule(schedule)
            _check(build, batch, params, parts)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_row_of_many_pieces(build: Build, greedy: bool) -> None:
    batch, params = _batch(1, greedy=greedy, aligned=True)
    for parts in (17, 32):
        _check(build, batch, params, parts)


@pytest.mark.parametrize("greedy", [False, True])
def test_rows_behind_an_end_are_not_read(build: Build, greedy: bool) -> None:
    batch, params = _batch(1, greedy=greedy, aligned=True)
    library = build(verify_job(batch, params, Strict(), None).variant)
    library.set_schedule(0)
    library.set_together(0)
    library.take_num_vectors()
    _check(build, batch, params, parts=5)
    library.set_together(1)
    vectors_of_first_rows = batch.num_reqs * batch.vocab_size // 8
    assert library.take_num_vectors() == 2 * vectors_of_first_rows  # in two launches


def _greedy(logits: torch.Tensor, drafts: torch.Tensor) -> tuple[VerifyBatch, SamplingTensors]:
    num_reqs = len(logits)
    batch = VerifyBatch.dense(
        target_logits=logits.to(torch.bfloat16),
        draft_token_ids=drafts,
        positions=torch.arange(num_reqs),
    )
    wishes = [SamplingParams(seed=i, temperature=0.0) for i in range(num_reqs)]
    return batch, SamplingTensors.stack(wishes)


def test_the_first_of_equal_logits_wins_and_flawed_rows_are_told(build: Build) -> None:
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 17_160, generator=noise).clamp(max=2)  # many are the largest
    logits[1] = -torch.rand(3, 17_160, generator=noise) - 1
    logits[1, :, 9000], logits[1, :, 3000] = 0.0, -0.0
    logits[2, 1, 9000] = torch.nan
    logits[3, 0, 12_000] = torch.inf
    logits[4, 1] = -torch.inf
    logits[5, 1, :16_000] = -torch.inf
    drafts = logits[:, :2].to(torch.bfloat16).float().argmax(-1)
    drafts[0, 1] = (logits[0, 1] == 2).nonzero()[1, 0]  # as large, but later
    for parts in (1, 4, 5, 17):
        _check(build, *_greedy(logits, drafts), parts)


def test_a_greedy_draft_may_be_longer_than_a_warp(build: Build) -> None:
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 41, 1304, generator=noise)
    drafts = logits[:, :-1].to(torch.bfloat16).float().argmax(-1)
    drafts[1, 35] = 3
    batch, params = _greedy(logits, drafts)
    library = build(verify_job(batch, params, Strict(), None).variant)
    for together in (1, 0):
        library.set_together(together)
        _check(build, batch, params, parts=3)
    library.set_together(1)
