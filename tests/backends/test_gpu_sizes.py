"""Batches of every size on a GPU: none, one token, 2**31 logits."""

import pytest
import torch
from attrs import evolve

from acceptor.core import (
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingTensors,
    Strict,
    VerifyBatch,
)
from kit.on_gpu import (
    Verification,
    assert_alike,
    assert_identical,
    every_fused_backend,
    sampler_of,
    verification,
    wishes_of,
)

pytestmark = pytest.mark.gpu

both = pytest.mark.parametrize("policy", [Probabilistic(), Strict()], ids=lambda p: p.name)


@every_fused_backend
@both
@pytest.mark.parametrize("vocab_size", [1, 2, 511, 513, 200_065])
def test_every_vocabulary(backend: str, policy: Policy, vocab_size: int) -> None:
    step = verification(policy, num_reqs=5, vocab_size=vocab_size)
    assert_alike(step, step.by(backend), step.by("reference"))


@every_fused_backend
@pytest.mark.parametrize("num_spec_tokens", [0, 1, 5, 16])
def test_every_length_of_draft(backend: str, num_spec_tokens: int) -> None:
    step = verification(
        Probabilistic(), num_reqs=5, num_spec_tokens=num_spec_tokens, vocab_size=5000
    )
    assert_alike(step, step.by(backend), step.by("reference"))


@every_fused_backend
@both
@pytest.mark.parametrize("num_spec_tokens", [0, 3])
def test_no_requests_at_all(backend: str, policy: Policy, num_spec_tokens: int) -> None:
    batch = VerifyBatch(
        target_logits=torch.zeros(0, 1000, device="cuda"),
        cu_num_logits=torch.zeros(1, dtype=torch.int64, device="cuda"),
        draft_token_ids=torch.zeros(0, num_spec_tokens, dtype=torch.int64, device="cuda"),
        positions=torch.zeros(0, dtype=torch.int64, device="cuda"),
        draft_logits=torch.zeros(2, 3, 1000, device="cuda"),
    )
    params = SamplingTensors.stack([], "cuda")
    output = sampler_of(backend).verify(batch, params, policy)
    assert output.token_ids.shape == (0, num_spec_tokens + 1)
    assert output.num_accepted.shape == output.status.shape == (0,)
    none = SampleBatch(logits=batch.target_logits, positions=batch.positions)
    assert sampler_of(backend).sample(none, params).token_ids.shape == (0,)


@every_fused_backend
@pytest.mark.parametrize("gap", [1, 3, 8])
def test_row_strides_that_are_not_the_vocabulary(backend: str, gap: int) -> None:
    step = verification(Probabilistic(), num_reqs=5, vocab_size=50_257)
    batch = step.batch
    assert batch.draft_logits is not None
    changed = evolve(
        batch,
        target_logits=with_gap(batch.target_logits, gap),
        draft_logits=with_gap(batch.draft_logits, gap),
    )
    step = evolve(step, batch=changed)
    assert_alike(step, step.by(backend), step.by("reference"))


def with_gap(logits: torch.Tensor, gap: int) -> torch.Tensor:
    shape = (*logits.shape[:-1], logits.shape[-1] + gap)
    wide = torch.full(shape, torch.nan, dtype=logits.dtype, device="cuda")
    wide[..., : logits.shape[-1]] = logits
    return wide[..., : logits.shape[-1]]


@every_fused_backend
def test_more_than_2_to_the_31_logits(backend: str) -> None:
    num_reqs, num_drafts, vocab_size = 1220, 16, 120_000
    assert num_reqs * num_drafts * vocab_size > 2**31
    if torch.cuda.get_device_properties(0).total_memory < 24 * 2**30:
        pytest.skip("needs a CUDA device with 24 GiB")
    noise = torch.Generator("cuda").manual_seed(0)
    shape = (num_reqs, num_drafts + 1, vocab_size)
    target = torch.randn(shape, device="cuda", generator=noise, dtype=torch.bfloat16).mul_(3)
    # Each draft row is the target's next one.
    draft = target[:, 1:]
    wishes = wishes_of(num_reqs)
    drafts = torch.randint(vocab_size, (num_reqs, num_drafts), device="cuda", generator=noise)
    drafts[:, :8] = draft[:, :8].argmax(-1)
    batch = VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=drafts,
        positions=torch.arange(num_reqs, device="cuda"),
        draft_logits=draft,
    )
    params = SamplingTensors.stack(wishes, "cuda")
    whole = Verification(batch, wishes, params, Probabilistic()).by(backend)
    last = slice(num_reqs - 5, num_reqs)
    few = VerifyBatch.dense(
        target_logits=target[last],
        draft_token_ids=drafts[last],
        positions=batch.positions[last],
        draft_logits=draft[last],
    )
    params = SamplingTensors.stack(wishes[last], "cuda")
    step = Verification(few, wishes[last], params, Probabilistic())
    alone = step.by(backend)
    assert_identical(alone, whole, torch.arange(num_reqs, device="cuda")[last])
    assert_alike(step, alone, step.by("reference"))
