"""The kernels that read pieces of rows and decide, built by g++, return the reference's tokens."""

import pytest
import torch
from attrs import evolve

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


every_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])


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


@pytest.mark.parametrize("guessed", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_rows_behind_an_end_are_not_read(build: Build, greedy: bool, guessed: bool) -> None:
    batch, params = _batch(0 if guessed else 1, greedy=greedy, aligned=True)
    assert guessed == (len(batch.target_logits) == batch.num_reqs * (batch.max_spec_len + 1))
    library = build(verify_job(batch, params, Strict(), None).variant)
    library.set_schedule(0)
    library.set_together(0)
    library.take_num_vectors()
    _check(build, batch, params, parts=5)
    library.set_together(1)
    vectors_of_first_rows = batch.num_reqs * batch.vocab_size // 8
    assert library.take_num_vectors() == 2 * vectors_of_first_rows  # in two launches


def _greedy(
    logits: torch.Tensor, drafts: torch.Tensor, dtype: torch.dtype = torch.bfloat16
) -> tuple[VerifyBatch, SamplingTensors]:
    num_reqs = len(logits)
    batch = VerifyBatch.dense(
        target_logits=logits.to(dtype),
        draft_token_ids=drafts,
        positions=torch.arange(num_reqs),
    )
    wishes = [SamplingParams(seed=i, temperature=0.0) for i in range(num_reqs)]
    return batch, SamplingTensors.stack(wishes)


@every_dtype
def test_the_first_of_equal_logits_wins_and_flawed_rows_are_told(
    build: Build, dtype: torch.dtype
) -> None:
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 17_160, generator=noise).clamp(max=2)  # many are the largest
    logits[1] = -torch.rand(3, 17_160, generator=noise) - 1
    logits[1, :, 9000], logits[1, :, 3000] = 0.0, -0.0
    logits[2, 1, 9000] = torch.nan
    logits[3, 0, 12_000] = torch.inf
    logits[4, 1] = -torch.inf
    logits[5, 1, :16_000] = -torch.inf
    drafts = logits[:, :2].to(dtype).float().argmax(-1)
    drafts[0, 1] = (logits[0, 1] == 2).nonzero()[1, 0]  # as large, but later
    for parts in (1, 4, 5, 17):
        _check(build, *_greedy(logits, drafts, dtype), parts)


@every_dtype
def test_the_largest_logit_is_found_wherever_it_is(build: Build, dtype: torch.dtype) -> None:
    """In every block of a piece, its last ones among them, and in rows of any number of blocks."""
    noise = torch.Generator().manual_seed(0)
    for vocab_size in (8, 504, 512, 520, 4096, 7000):
        logits = -1 - torch.rand(9, 2, vocab_size + 8, generator=noise)
        logits[..., vocab_size:] = 5
        places = torch.linspace(0, vocab_size - 1, 18).long().view(9, 2)
        logits.scatter_(2, places[..., None], -0.5)
        logits[-1, 1, :vocab_size] = -torch.inf
        drafts = places[:, :1].clone()
        drafts[::3] = 7
        batch, params = _greedy(logits, drafts, dtype)
        batch = evolve(batch, target_logits=batch.target_logits[:, :vocab_size])
        for parts in (1, 2, 3):
            _check(build, batch, params, parts)


@every_dtype
def test_greedy_rows_that_no_vectors_are_read_of(build: Build, dtype: torch.dtype) -> None:
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 3, 3003, generator=noise).clamp(max=2)
    logits[1, 1, 700] = torch.nan
    for vocab_size, begin in ((3000, 1), (2999, 0), (2992, 3)):
        drafts = logits[:, :2, begin : begin + vocab_size].to(dtype).float().argmax(-1)
        batch, params = _greedy(logits, drafts, dtype)
        unaligned = batch.target_logits[:, begin : begin + vocab_size]
        _check(build, evolve(batch, target_logits=unaligned), params, parts=3)


def test_greedy_rows_are_not_always_where_they_are_guessed(build: Build) -> None:
    """There are as many rows as if every request had all drafts, but some belong to nobody."""
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 4096, generator=noise)
    drafts = logits[:, :2].to(torch.bfloat16).float().argmax(-1)
    batch, params = _greedy(logits, drafts)
    rows = batch.target_logits
    drafts[1] = torch.tensor([rows[2].float().argmax(), -1])
    drafts[3] = torch.tensor([rows[8].float().argmax(), rows.shape[1]])
    starts = torch.tensor([0, 2, 4, 7, 10])
    _check(build, evolve(batch, cu_num_logits=starts), params, parts=3)


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
