"""All three backends against each other on a GPU, at the sizes of real vocabularies."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from attrs import evolve

from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingTensors,
    Strict,
    TokenCounts,
    VerifyBatch,
)
from kit.on_gpu import (
    FUSED,
    Verification,
    assert_alike,
    every_fused_backend,
    every_policy,
    sampler_of,
    verification,
    wishes_of,
)

pytestmark = pytest.mark.gpu


@every_policy
def test_three_backends_return_the_same_tokens(policy: Policy) -> None:
    check_three_backends(policy, 151_936)


@pytest.mark.parametrize(
    "policy", [Strict(), Probabilistic(), Block()], ids=lambda policy: policy.name
)
def test_three_backends_return_the_same_tokens_of_rows_that_no_vector_fits(policy: Policy) -> None:
    check_three_backends(policy, 50_257)


def check_three_backends(policy: Policy, vocab_size: int) -> None:
    step = verification(policy, vocab_size=vocab_size)
    expected = step.by("reference")
    outputs = [step.by(backend) for backend in FUSED]
    for output in outputs:
        assert_alike(step, output, expected)
    if not torch.equal(outputs[0].token_ids, outputs[1].token_ids):
        # Both agree with the reference but for near-ties; these two are seen to differ by one.
        different = (outputs[0].token_ids != outputs[1].token_ids).any(-1)
        assert int(different.sum()) <= 1


@every_fused_backend
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_dtype(backend: str, dtype: str) -> None:
    step = verification(Probabilistic(), dtype=dtype, vocab_size=32_000)
    assert_alike(step, step.by(backend), step.by("reference"))


@every_fused_backend
def test_bias_and_penalties(backend: str) -> None:
    plain = verification(Probabilistic(), num_reqs=6, vocab_size=32_000)
    drafts = plain.batch.draft_token_ids
    counts = TokenCounts.empty(6, 32_000, "cuda")
    counts.add(torch.arange(6, device="cuda"), drafts)
    batch = evolve(plain.batch, token_counts=counts)
    wishes = tuple(
        evolve(
            wish,
            logit_bias={int(ids[0]): -1.5, 7: 2.0},
            frequency_penalty=0.5,
            repetition_penalty=1.2,
        )
        for wish, ids in zip(plain.wishes, drafts.tolist(), strict=True)
    )
    params = SamplingTensors.stack(wishes, "cuda")
    step = Verification(batch, wishes, params, plain.policy)
    expected = step.by("reference")
    assert not torch.equal(expected.token_ids, plain.by("reference").token_ids)
    assert_alike(step, step.by(backend), expected)


@every_fused_backend
@pytest.mark.parametrize("drafter", ["mapped", "narrower", "one-hot"])
def test_other_draft_vocabularies(backend: str, drafter: str) -> None:
    step = verification(Probabilistic(), vocab_size=32_000)
    batch = step.batch
    assert batch.draft_logits is not None
    noise = torch.Generator("cuda").manual_seed(3)
    id_map = torch.randperm(32_000, generator=noise, device="cuda")[:9000]
    drafts = torch.randint(9000, batch.draft_token_ids.shape, generator=noise, device="cuda")
    few = batch.draft_logits[..., :9000]
    changed: VerifyBatch
    if drafter == "mapped":
        few = batch.draft_logits[..., id_map].contiguous()
        changed = evolve(
            batch, draft_logits=few, draft_to_target=id_map, draft_token_ids=id_map[drafts]
        )
    elif drafter == "narrower":
        changed = evolve(batch, draft_logits=few, draft_token_ids=drafts)
    else:
        changed = evolve(batch, draft_logits=None)
    step = evolve(step, batch=changed)
    assert_alike(step, step.by(backend), step.by("reference"))


@every_fused_backend
def test_bad_rows_and_ids_stop_their_own_request_only(backend: str) -> None:
    step = verification(Probabilistic(), vocab_size=50_257)
    expected = step.by(backend)
    assert step.batch.draft_logits is not None
    step.batch.target_logits[4 * 2 + 1, 40_000] = torch.nan
    step.batch.target_logits[4 * 3 + 3, 7] = torch.inf
    step.batch.draft_logits[5, 0] = -torch.inf
    step.batch.draft_token_ids[6, 1] = -1
    step.batch.draft_token_ids[7, 0] = 50_257
    got = step.by(backend)
    assert_alike(step, got, step.by("reference"))
    untouched = [0, 1, 4, 8, 9]
    assert torch.equal(got.token_ids[untouched], expected.token_ids[untouched])


SUITE = (
    "test_random_batches",
    "test_corner and float",
    "test_corner and not float",
    "not test_random_batches and not test_corner",
)
"""Parts of about the same length."""


@pytest.mark.parametrize("backend", ["reference", *FUSED])
def test_the_conformance_suite(backend: str) -> None:
    sampler_of(backend)
    # Each compiles tens of kernels, one after the other.
    with ThreadPoolExecutor(len(SUITE)) as pool:
        for finished in pool.map(partial(run_suite, backend), SUITE):
            assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-1000:]


def run_suite(backend: str, part: str) -> "subprocess.CompletedProcess[str]":
    suite = ["--pyargs", "acceptor.backends.conformance.test_backend", "-k", part]
    plugin = ["-p", "acceptor.backends.conformance.pytest_plugin", "--import-mode=importlib"]
    wishes = ["--backend", backend, "--device", "cuda", "--batches", "2"]
    wishes += ["--max-vocab-size", "5001"] + ["--may-wait"] * (backend == "reference")
    calm = ["-q", "-W", "default", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *calm, *plugin, *wishes, *suite],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.parametrize("num_reqs", [1, 3])
@pytest.mark.parametrize("vocab_size", [300, 5000, 32_000])
@pytest.mark.parametrize("draft_index", [None, 2])
def test_the_reference_draws_alike_on_both_devices(
    num_reqs: int, vocab_size: int, draft_index: int | None
) -> None:
    noise = torch.Generator().manual_seed(vocab_size)
    logits = 3 * torch.randn(num_reqs, vocab_size, generator=noise)
    drawn = []
    for device in ("cpu", "cuda"):
        batch = SampleBatch(
            logits=logits.to(device),
            positions=torch.arange(num_reqs, device=device),
            draft_index=draft_index,
        )
        params = SamplingTensors.stack(wishes_of(num_reqs), device)
        drawn.append(sampler_of("reference").sample(batch, params).token_ids.cpu())
    assert torch.equal(*drawn)


def test_strict_needs_no_draft_logits() -> None:
    step = verification(Strict(), num_reqs=5)
    without = evolve(step, batch=evolve(step.batch, draft_logits=None))
    for backend in FUSED:
        assert torch.equal(step.by(backend).token_ids, without.by(backend).token_ids)
