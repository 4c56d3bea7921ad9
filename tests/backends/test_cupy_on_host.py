"""The CUDA kernels, built by g++ and run on the CPU, return what the reference returns."""

import math
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    SampleBatch,
    SamplingParams,
    Status,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
)
from acceptor.core.output import Logprobs, VerifyOutput
from acceptor.core.sampling_tensors import SamplingTensors
from kit.cuda_on_host import GXX
from kit.cupy_batches import DTYPES, KINDS, Form, random_batch
from kit.cupy_on_host import HostSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
POLICIES = (
    Strict(),
    Probabilistic(),
    Block(),
    Synthetic([0.8, 0.6, 0.5]),
    Typical(),
    RelaxedTopN(3, 0.6),
    Fly(0.2, 1),
)
REFERENCE = load_sampler("reference")
NO_MASKS: dict[str, Any] = {"allowed_tokens": None, "allowed_rows": None}
by_name = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


def assert_same(got: VerifyOutput, expected: VerifyOutput) -> None:
    assert torch.equal(got.token_ids, expected.token_ids)
    assert torch.equal(got.num_accepted, expected.num_accepted)
    assert torch.equal(got.status, expected.status)
    if expected.total_variation is not None:
        caused = got.total_variation
        torch.testing.assert_close(caused, expected.total_variation, rtol=0, atol=3e-5)
    if expected.logprobs is not None:
        assert_same_logprobs(got.logprobs, expected.logprobs)


def assert_same_logprobs(got: Logprobs | None, expected: Logprobs) -> None:
    assert got is not None
    assert torch.equal(got.top_token_ids, expected.top_token_ids)
    torch.testing.assert_close(got.emitted, expected.emitted, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(got.top, expected.top, rtol=1e-5, atol=1e-4)


@by_name
def test_any_batch_is_verified_as_the_reference_does(policy: Policy) -> None:
    torch.set_num_threads(1)
    for seed in range(5):
        batch, params = random_batch(1000 * POLICIES.index(policy) + seed)
        # Threads and CTAs in any order; long pieces of rows, and short ones.
        sampler = HostSampler(room=(1, 1000)[seed % 2], schedule=seed % 3)
        got = sampler.verify(batch, params, policy)
        assert_same(got, REFERENCE.verify(batch, params, policy))


@pytest.mark.parametrize("policy", [Typical(), RelaxedTopN(3, 0.6)], ids=lambda p: p.name)
def test_a_draft_may_end_at_any_time_while_rows_behind_are_judged(policy: Policy) -> None:
    batch, params = random_batch(21, Form(33, 33, num_reqs=4, num_drafts=3))
    expected = REFERENCE.verify(batch, params, policy)
    for schedule in range(1, 41):
        assert_same(HostSampler(schedule=schedule).verify(batch, params, policy), expected)


def test_a_draft_may_end_at_any_time_while_rows_behind_are_searched() -> None:
    form = Form(6_400, 6_400, (torch.float16, torch.float32), num_reqs=3, masked=True)
    batch, params = random_batch(1_000_112, form)
    expected = REFERENCE.verify(batch, params, Strict())
    for schedule in range(1, 13):
        assert_same(HostSampler(schedule=schedule).verify(batch, params, Strict()), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_many_blocks_are_filtered_as_the_reference_does(kind: str) -> None:
    form = Form(20_001, 20_001, num_reqs=3, num_drafts=1, kinds=(kind,))
    batch, params = random_batch(KINDS.index(kind), form)
    got = HostSampler().verify(batch, params, Probabilistic())
    assert_same(got, REFERENCE.verify(batch, params, Probabilistic()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_hide_neither_nan_nor_infinity(dtype: torch.dtype) -> None:
    # Rows that are read by whole vectors, and end in the first half of a block.
    form = Form(3_080, 3_080, (dtype, dtype), num_reqs=3, masked=True)
    for seed, value in enumerate((0.0, math.nan, math.inf)):
        batch, params = random_batch(seed, form)
        logits, allowed = batch.target_logits.contiguous(), batch.allowed_tokens
        assert allowed is not None
        logits[0, 3_070], allowed[0, 3_070 // 32] = value, 0
        batch = evolve(batch, target_logits=logits, allowed_rows=None)
        got = HostSampler(room=1).verify(batch, params, Probabilistic())
        assert_same(got, REFERENCE.verify(batch, params, Probabilistic()))
        assert bool(got.status[0] & Status.TARGET_LOGITS_INVALID) == (value != 0.0)


@pytest.mark.parametrize("policy", [Probabilistic(), Block(), Fly(0.2, 1)], ids=lambda p: p.name)
def test_a_workspace_serves_batches_of_any_size_in_turn(policy: Policy) -> None:
    calls = [random_batch(seed) for seed in range(2)]
    sampler = HostSampler()
    size = max(sampler.verify_workspace_size(*call, policy) for call in calls)
    workspace = torch.zeros(size + 320, dtype=torch.uint8)
    for batch, params in (*calls, *reversed(calls)):
        got = sampler.verify(batch, params, policy, workspace=workspace)
        assert_same(got, REFERENCE.verify(batch, params, policy))


def draws_of(batch: VerifyBatch) -> SampleBatch:
    return SampleBatch(
        logits=batch.target_logits[: batch.num_reqs],
        positions=batch.positions,
        token_counts=batch.token_counts,
        allowed_tokens=batch.allowed_tokens,
        allowed_rows=None if batch.allowed_rows is None else batch.allowed_rows[: batch.num_reqs],
    )


@pytest.mark.parametrize("drafting", [False, True])
def test_draws_are_the_reference_s(drafting: bool) -> None:
    for seed in range(6):
        verified, params = random_batch(seed)
        batch = draws_of(verified)
        if drafting:
            batch = evolve(batch, draft_index=1 + seed % 3, **NO_MASKS)
        got, expected = (
            HostSampler(schedule=seed % 2).sample(batch, params),
            REFERENCE.sample(batch, params),
        )
        assert torch.equal(got.token_ids, expected.token_ids), seed
        assert torch.equal(got.status, expected.status)
        if expected.logprobs is not None:
            assert_same_logprobs(got.logprobs, expected.logprobs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_temperatures_tell_logits_apart_that_share_a_count(dtype: torch.dtype) -> None:
    noise = torch.Generator().manual_seed(0)
    for temperature in (1e-30, 1e-27, 1.0):
        logits = (1e-27 * torch.rand(2, 600, generator=noise)).to(dtype)
        requests = [SamplingParams(temperature=temperature, top_p=0.9, seed=i) for i in range(2)]
        params = SamplingTensors.stack(requests, logits.device)
        batch = SampleBatch(logits=logits, positions=torch.tensor([3, 4]))
        expected = REFERENCE.sample(batch, params).token_ids
        assert torch.equal(HostSampler().sample(batch, params).token_ids, expected)


def mapped(batch: VerifyBatch, seed: int) -> VerifyBatch:
    """The same with draft ids that are anywhere among the target's."""
    assert batch.draft_logits is not None
    order = torch.randperm(batch.vocab_size, generator=torch.Generator().manual_seed(seed))
    return evolve(batch, draft_to_target=order[: batch.draft_logits.shape[-1]])


def test_a_share_may_end_among_the_smallest_magnitudes() -> None:
    rows = torch.tensor([[0.0, -9984.0], [-3e-30, 0.0], [0.0, 0.0], [1e-20, -1e-20]])
    batch = SampleBatch(logits=rows.bfloat16(), positions=torch.arange(4))
    wanted = [SamplingParams(seed=s, temperature=1e6, min_p=0.9999, top_p=0.5) for s in range(4)]
    params = SamplingTensors.stack(wanted)
    got, expected = HostSampler().sample(batch, params), REFERENCE.sample(batch, params)
    assert torch.equal(got.token_ids, expected.token_ids)


def accepted_of_one_draft(row: list[float], draft: int, policy: Policy) -> list[list[int]]:
    """By the kernels and by the reference."""
    batch = VerifyBatch(
        target_logits=torch.tensor([row, [0.0] * len(row)]),
        cu_num_logits=torch.tensor([0, 2]),
        draft_token_ids=torch.tensor([[draft]]),
        positions=torch.tensor([0]),
    )
    params = SamplingTensors.stack([SamplingParams(seed=1)])
    samplers = (HostSampler(), REFERENCE)
    return [s.verify(batch, params, policy).num_accepted.tolist() for s in samplers]


def test_logits_whose_probabilities_tie_are_near_best_alike() -> None:
    accepted = accepted_of_one_draft([1e-30, 0.0, -1e-30], 2, RelaxedTopN(1, 0.5))
    assert accepted == [[1], [1]]


@pytest.mark.parametrize("policy", [RelaxedTopN(2, 1.0), Typical(0.0, 0.3)], ids=lambda p: p.name)
def test_what_weighs_less_than_any_float_may_be_accepted(policy: Policy) -> None:
    assert accepted_of_one_draft([0.0, -200.0, -300.0], 1, policy) == [[1], [1]]
    cut_off = [0.0, -torch.inf, -torch.inf]
    assert accepted_of_one_draft(cut_off, 1, policy) == [[0], [0]]


@pytest.mark.parametrize("policy", [Probabilistic(), Block(), Typical()], ids=lambda p: p.name)
def test_drafts_with_ids_of_their_own_are_the_reference_s(policy: Policy) -> None:
    form = Form(1301, 1100, adjusted=True)
    for seed in range(2):
        batch, params = random_batch(seed, form)
        if batch.draft_logits is None:
            continue
        batch = mapped(batch, seed)
        got = HostSampler().verify(batch, params, policy)
        assert_same(got, REFERENCE.verify(batch, params, policy))


def test_draws_in_mapped_ids_are_the_reference_s() -> None:
    for seed in range(2):
        verified, params = random_batch(seed, Form(700, 700))
        ids = torch.randperm(1301, generator=torch.Generator().manual_seed(seed))[:700]
        batch = evolve(
            draws_of(verified), draft_index=1, draft_to_target=ids, target_vocab_size=1301
        )
        got, expected = HostSampler().sample(batch, params), REFERENCE.sample(batch, params)
        assert torch.equal(got.token_ids, expected.token_ids)


def test_an_empty_batch_is_verified() -> None:
    batch, _ = random_batch(0, Form(33, 33))
    none = evolve(
        batch,
        target_logits=batch.target_logits[:0],
        cu_num_logits=batch.cu_num_logits[:1],
        draft_token_ids=batch.draft_token_ids[:0],
        positions=batch.positions[:0],
        draft_logits=None,
    )
    got = HostSampler().verify(none, SamplingTensors.stack([]), Strict())
    assert got.token_ids.shape == (0, 4)
