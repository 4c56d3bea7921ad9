"""The narrow kernel's warps that read rows and those that judge them wait for no more than rows."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import place, verify_job
from acceptor.backends.cupy_backend.params import pack
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.cupy_backend.workspace import Workspace
from acceptor.core import (
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    Typical,
    VerifyBatch,
)
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_on_host, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
NUM_DRAFTS = 5
BLOCK_SIZE, TURN = 512, 24
"""A turn: blocks that twelve warps read at once."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder: Path = tmp_path_factory.mktemp("kernels")
    return build_once("verify_on_host", folder)


@pytest.mark.parametrize("vocab_size", [1032, 17_160])
@pytest.mark.parametrize("policy", [Probabilistic(), Strict(), Typical()], ids=lambda p: p.name)
@pytest.mark.parametrize("filtered", [False, True])
def test_drafts_end_at_any_row_whoever_is_slow(
    build: Build, policy: Policy, filtered: bool, vocab_size: int
) -> None:
    """Rows are fewer blocks than there are warps, or more; rows with filters are flat, so open."""
    torch.set_num_threads(1)
    batch = ending_batch(vocab_size)
    recipe: dict[str, Any] = {"top_p": 0.9} if filtered else {}
    params = SamplingTensors.stack(
        [SamplingParams(seed=i, temperature=0.8, **recipe) for i in range(batch.num_reqs)]
    )
    expected = load_sampler("reference").verify(batch, params, policy)
    assert len(set(expected.num_accepted.tolist())) >= NUM_DRAFTS
    library = build(verify_job(batch, params, policy, None).variant)
    for schedule in range(6):
        library.set_schedule(schedule)
        got = run(build, batch, params, policy, LaunchShape(0, 3 if schedule % 2 else 9))
        assert torch.equal(got.token_ids, expected.token_ids), schedule
        assert torch.equal(got.status, expected.status)
    library.set_schedule(0)


@pytest.mark.parametrize("vocab_size", [1032, 17_160])
def test_blocks_stay_in_registers_where_a_processor_has_no_room(
    build: Build, vocab_size: int
) -> None:
    torch.set_num_threads(1)
    batch = ending_batch(vocab_size)
    params = SamplingTensors.stack(
        [SamplingParams(seed=i, temperature=0.8, top_p=0.9) for i in range(batch.num_reqs)]
    )
    expected = load_sampler("reference").verify(batch, params, Probabilistic())
    without = lambda variant: build(evolve(variant, has_room=False))  # noqa: E731
    got = run(without, batch, params, Probabilistic(), LaunchShape(0, 3))
    assert torch.equal(got.token_ids, expected.token_ids)
    assert torch.equal(got.status, expected.status)


@pytest.mark.parametrize("slots", [False, True])
def test_a_request_s_first_turn_is_prefetched_while_it_is_read(build: Build, slots: bool) -> None:
    """Of its first target row, which no slot decides, and only if all may have as many rows."""
    torch.set_num_threads(1)
    batch = ending_batch(17_160)
    if slots:
        batch = evolve(batch, slot_ids=torch.arange(batch.num_reqs).flip(0))
    params = SamplingTensors.stack(
        [SamplingParams(seed=i, temperature=0.8, top_p=0.9) for i in range(batch.num_reqs)]
    )
    library = build(verify_job(batch, params, Probabilistic(), None).variant)
    rows = batch.target_logits.view(batch.num_reqs, NUM_DRAFTS + 1, -1)
    places = TURN * BLOCK_SIZE // 16  # one a lane
    for request in (0, 3, batch.num_reqs - 1):
        first, second = rows[request, 0].data_ptr(), rows[request, 1].data_ptr()
        library.set_readable(0, ctypes.c_size_t(first), ctypes.c_size_t(second))
        library.take_num_prefetched()
        run(build, batch, params, Probabilistic(), LaunchShape(0, 3))
        assert library.take_num_prefetched() == 2 * places, request
    longer = torch.cat([batch.target_logits, batch.target_logits[:1]])
    ends = batch.cu_num_logits.clone()
    ends[-1] += 1
    unknown = evolve(batch, target_logits=longer, cu_num_logits=ends)
    library.set_readable(0, ctypes.c_size_t(0), ctypes.c_size_t(2**63))
    run(build, unknown, params, Probabilistic(), LaunchShape(0, 3))
    assert library.take_num_prefetched() == 0


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_readers_that_are_stopped_write_nothing_elsewhere(
    tmp_path: Path, dtype: torch.dtype, filtered: bool
) -> None:
    """Rows of three turns, the last one of a block that is not whole; logits of all rows differ."""
    torch.set_num_threads(1)
    blocks = 2 * TURN + 3
    vocab_size = blocks * BLOCK_SIZE - 504
    noise = torch.Generator().manual_seed(0)
    target = torch.randn(1, 3, vocab_size, generator=noise).to(dtype)
    batch = VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=torch.tensor([[1, 2]]),
        positions=torch.arange(1),
        draft_logits=torch.randn(1, 2, vocab_size, generator=noise).to(dtype),
    )
    recipe: dict[str, Any] = {"top_k": 5} if filtered else {}
    params = SamplingTensors.stack([SamplingParams(seed=0, temperature=0.8, **recipe)])
    job = verify_job(batch, params, Probabilistic(), None)
    library = build_on_host("berth_on_host", job.variant, tmp_path)
    place(job.fields, job.extent, Workspace.for_extent(job.extent, torch.device("cpu")))
    job.fields.update(LaunchShape(0, 1).fields(job.extent))
    packed = bytes(pack(job.fields, job.numbers, job.rates))
    assert library.params_size() == len(packed)
    found = []
    for fails in (0, 1):
        stats = torch.full((4, blocks, 2), -77.0)
        halves = [ctypes.c_void_p(half.data_ptr()) for half in (stats[:2], stats[2:])]
        library.run_readers(packed, fails, *halves)
        found.append(stats.view(2, 2, blocks, 2))
    whole, stopped = found
    expected = torch.nn.functional.pad(target[0, :2].float(), (0, 504), value=-torch.inf)
    assert torch.equal(whole[0, :, :, 0], expected.view(2, blocks, BLOCK_SIZE).amax(-1))
    assert torch.equal(stopped[:, 0], whole[:, 0])
    assert (stopped[:, 1] == -77.0).any(-1).sum() >= 2 * (blocks - TURN)


def ending_batch(vocab_size: int) -> VerifyBatch:
    """Request i has a draft that agrees with the target up to its row i; some rows are NaN."""
    noise = torch.Generator().manual_seed(vocab_size)
    num_reqs = NUM_DRAFTS + 3
    target = torch.randn(num_reqs, NUM_DRAFTS + 1, vocab_size, generator=noise)
    draft = target[:, :-1].clone()
    drafts = torch.randint(vocab_size, (num_reqs, NUM_DRAFTS), generator=noise)
    target[:, :-1].scatter_(2, drafts[:, :, None], 9.0)
    draft.scatter_(2, drafts[:, :, None], 9.0)
    for request in range(NUM_DRAFTS):
        token = drafts[request, request]
        target[request, request, token] = -20.0
    target[NUM_DRAFTS, 2, 7] = torch.nan
    return VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=drafts,
        positions=torch.arange(num_reqs),
        draft_logits=draft.bfloat16(),
    )
