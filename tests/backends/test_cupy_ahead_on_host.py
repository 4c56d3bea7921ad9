"""The narrow kernel's warps that read rows and those that judge them wait for no more than rows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import (
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    Typical,
    VerifyBatch,
)
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
NUM_DRAFTS = 5


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
