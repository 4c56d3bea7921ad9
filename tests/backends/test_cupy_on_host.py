"""The CUDA kernels, built by g++ and run on the CPU, return what the reference returns.

A fiber per CUDA thread and an operating system thread per CTA: barriers, shuffles, atomics and the
meeting of a request's CTAs are real. Threads also run in random order between barriers, so that a
barrier that is missing shows as wrong tokens.
"""

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import MAX_SPEC_LEN, verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant, kernel_policy
from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
)
from acceptor.core.errors import UnavailableError
from acceptor.tests.kit.cuda_batches import random_batch
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_on_host, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
SHAPES = (
    LaunchShape(group=0, num_ctas=5),
    LaunchShape(group=0, num_ctas=2),
    LaunchShape(group=1, num_ctas=5),
    LaunchShape(group=2, num_ctas=10),
)
LOSSY = (KernelPolicy.TYPICAL, KernelPolicy.RELAXED, KernelPolicy.FLY)
POLICIES = (
    Strict(),
    Probabilistic(),
    Block(),
    Synthetic([0.8, 0.6, 0.5]),
    Typical(),
    RelaxedTopN(3, 0.6),
    Fly(0.2, 1),
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("kernels")
    return build_once("verify_on_host", folder, lambda v: ["-DHAS_WIDE"] * v.has_wide)


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_tokens_are_the_reference_s_in_every_shape(
    build: Build, policy: Policy, filtered: bool
) -> None:
    torch.set_num_threads(1)
    for seed in range(2):
        batch, params = random_batch(seed, filtered)
        expected = load_sampler("reference").verify(batch, params, policy)
        for shape in SHAPES if kernel_policy(policy) not in LOSSY else SHAPES[:2]:
            got = run(build, batch, params, policy, shape)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, shape)
            assert torch.equal(got.num_accepted, expected.num_accepted)
            assert torch.equal(got.status, expected.status)
            if expected.total_variation is not None:
                torch.testing.assert_close(
                    got.total_variation, expected.total_variation, rtol=0, atol=2e-5
                )


@pytest.mark.parametrize("policy", [Typical(), Fly(0.2, 1)], ids=lambda policy: policy.name)
def test_a_lossy_batch_of_greedy_requests_reports_no_variation(
    build: Build, policy: Policy
) -> None:
    batch, _ = random_batch(0, filtered=False)
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.0) for i in range(5)])
    expected = load_sampler("reference").verify(batch, params, policy)
    assert verify_job(batch, params, policy, None).variant.policy is KernelPolicy.STRICT
    for shape in SHAPES[1:3]:
        got = run(build, batch, params, policy, shape)
        assert torch.equal(got.token_ids, expected.token_ids)
        assert got.total_variation is not None
        assert not got.total_variation.any()


@pytest.mark.parametrize(("filtered", "ragged"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "policy", [Strict(), Probabilistic(), Block(), POLICIES[3]], ids=lambda policy: policy.name
)
def test_rows_of_whole_vectors_are_read_alike_whichever_thread_is_first(
    build: Build, policy: Policy, filtered: bool, ragged: bool
) -> None:
    torch.set_num_threads(1)
    batch, params = random_batch(1, filtered, aligned=True, ragged=ragged)
    expected = load_sampler("reference").verify(batch, params, policy)
    library = build(verify_job(batch, params, policy, None).variant)
    for which, logits in enumerate((batch.target_logits, batch.draft_logits)):
        assert logits is not None
        storage = logits.untyped_storage()
        begin = ctypes.c_size_t(storage.data_ptr())
        library.set_readable(which, begin, ctypes.c_size_t(begin.value + storage.nbytes()))
    library.take_num_outside()
    for seed in range(3):
        library.set_schedule(seed)
        for shape in SHAPES[1::2]:
            library.take_num_vectors()
            got = run(build, batch, params, policy, shape)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, shape)
            assert torch.equal(got.status, expected.status)
            assert library.take_num_vectors() > 1000
            assert library.take_num_outside() == 0
    library.set_schedule(0)


FLAT_RECIPES: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 4, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.02, "top_p": 0.95},
)


@pytest.mark.parametrize("num_drafts", [2, 6])
@pytest.mark.parametrize("policy", [Strict(), Probabilistic(), Block()], ids=lambda p: p.name)
def test_rows_that_statistics_leave_open_are_counted_by_all_of_a_request_s_ctas(
    build: Build, policy: Policy, num_drafts: int
) -> None:
    torch.set_num_threads(1)
    batch = flat_batch(num_drafts)
    seen = set()
    for recipe in FLAT_RECIPES:
        params = SamplingTensors.stack([SamplingParams(seed=i, **recipe) for i in range(3)])
        expected = load_sampler("reference").verify(batch, params, policy)
        seen |= set(expected.num_accepted.tolist())
        library = build(verify_job(batch, params, policy, None).variant)
        for group in (0, 1, 3):
            library.set_schedule(group % 2)
            got = run(build, batch, params, policy, LaunchShape(group, 3 * max(group, 1)))
            assert torch.equal(got.token_ids, expected.token_ids), (recipe, group)
            assert torch.equal(got.num_accepted, expected.num_accepted)
        library.set_schedule(0)
    # Both endings occurred: a token from the last row's law, and one from what a row leaves.
    if isinstance(policy, Strict):
        return
    assert num_drafts in seen
    assert len(seen) > 1


@pytest.mark.parametrize(
    "policy", [Strict(), Probabilistic(), Block(), POLICIES[3]], ids=lambda p: p.name
)
def test_the_last_of_a_request_s_ctas_may_have_nothing_to_read(
    build: Build, policy: Policy
) -> None:
    torch.set_num_threads(1)
    batch = flat_batch(2)
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.8) for i in range(3)])
    expected = load_sampler("reference").verify(batch, params, policy)
    job = verify_job(batch, params, policy, None)
    shape = LaunchShape(group=7, num_ctas=21)
    blocks = 3 * job.extent.target_blocks + 2 * job.extent.draft_blocks
    assert 6 * shape.fields(job.extent)["share"] == blocks
    for schedule in range(2):
        build(job.variant).set_schedule(schedule)
        got = run(build, batch, params, policy, shape)
        assert torch.equal(got.token_ids, expected.token_ids), schedule
    build(job.variant).set_schedule(0)


def flat_batch(num_drafts: int) -> VerifyBatch:
    """Rows whose nuclei are hundreds of tokens; the first draft agrees with the target."""
    noise = torch.Generator().manual_seed(num_drafts)
    target = 2 * torch.randn(3, num_drafts + 1, 2624, generator=noise)
    apart = torch.randn(3, num_drafts, 2624, generator=noise)
    draft = target[:, :-1] + apart * torch.tensor([0.0, 0.7, 0.7])[:, None, None]
    target, draft = target.to(torch.bfloat16), draft.to(torch.bfloat16)
    likely = (draft.float() / 0.8).softmax(-1)
    likely = torch.where(likely < likely.topk(4).values[..., -1:], 0, likely)
    drafts = torch.multinomial(likely.flatten(0, 1), 1, generator=noise).view(3, num_drafts)
    return VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=drafts,
        positions=torch.tensor([3, 4, 5]),
        draft_logits=draft,
    )


def test_a_missing_barrier_shows_in_some_order(tmp_path: Path) -> None:
    library = build_on_host(
        "barrier_on_host", Variant(KernelPolicy.STRICT, torch.float32), tmp_path
    )
    expected = [(i + 37) % 64 + 1 for i in range(64)]
    wrong = 0
    for seed in range(1, 6):
        library.set_schedule(seed)
        out = (ctypes.c_int * 64)()
        library.pass_on_with_barrier(out)
        assert list(out) == expected
        library.pass_on_without_barrier(out)
        wrong += list(out) != expected
    assert wrong == 5


@pytest.mark.parametrize("policy", [Strict(), Probabilistic(), Block(), Fly(0.2, 1)])
def test_a_draft_may_be_longer_than_a_warp(build: Build, policy: Policy) -> None:
    torch.set_num_threads(1)
    noise = torch.Generator().manual_seed(0)
    num_drafts, vocab_size = 40, 700
    target = torch.randn(2, num_drafts + 1, vocab_size, generator=noise)
    drafts = torch.randint(vocab_size, (2, num_drafts), generator=noise)
    target[:, :-1].scatter_(2, drafts[:, :, None], 16.0)
    target[1, 36] = torch.randn(vocab_size, generator=noise)
    draft = target[:, :-1] + torch.randn(2, num_drafts, vocab_size, generator=noise) / 2
    batch = VerifyBatch.dense(
        target_logits=target.to(torch.bfloat16),
        draft_token_ids=drafts,
        positions=torch.tensor([3, 4]),
        draft_logits=draft.to(torch.bfloat16),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.8) for i in range(2)])
    expected = load_sampler("reference").verify(batch, params, policy)
    assert expected.num_accepted.tolist()[0] == num_drafts
    assert 32 < expected.num_accepted.tolist()[1] <= num_drafts
    for group in (0, 2) if kernel_policy(policy) not in LOSSY else (0,):
        got = run(build, batch, params, policy, LaunchShape(group, 2 * max(group, 1)))
        assert torch.equal(got.token_ids, expected.token_ids)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_may_lie_apart(build: Build, dtype: torch.dtype) -> None:
    batch, params = random_batch(0, filtered=False)
    assert batch.slot_ids is not None
    apart = evolve(
        batch,
        draft_token_ids=batch.draft_token_ids.to(dtype).T.contiguous().T,
        positions=batch.positions.to(dtype).repeat_interleave(3)[::3],
        cu_num_logits=batch.cu_num_logits.to(dtype).repeat_interleave(2)[::2],
        slot_ids=batch.slot_ids.to(dtype).repeat_interleave(5)[::5],
    )
    expected = load_sampler("reference").verify(batch, params, Probabilistic())
    for shape in SHAPES[1:3]:
        got = run(build, apart, params, Probabilistic(), shape)
        assert torch.equal(got.token_ids, expected.token_ids)


def test_the_longest_draft_is_a_typed_limit() -> None:
    batch = VerifyBatch.dense(
        target_logits=torch.zeros(1, MAX_SPEC_LEN + 2, 5),
        draft_token_ids=torch.zeros(1, MAX_SPEC_LEN + 1, dtype=torch.int64),
        positions=torch.zeros(1, dtype=torch.int64),
    )
    params = SamplingTensors.stack([SamplingParams(seed=1)])
    with pytest.raises(UnavailableError, match=r"at most 127 draft tokens, got 128"):
        verify_job(batch, params, Strict(), None)
