"""All three backends against each other and the oracle on a GPU, at sizes of real vocabularies."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)
from kit.cuda_batches import refused_batch
from kit.on_gpu import (
    FUSED,
    KINDS,
    Verification,
    assert_alike,
    assert_identical,
    every_fused_backend,
    sampler_of,
    verification,
    wishes_of,
)

pytestmark = pytest.mark.gpu

LOSSLESS = (Strict(), Probabilistic(), Block())
VOCAB_SIZE = 151_936
FLAT: tuple[dict[str, Any], ...] = (
    {"temperature": 1.5, "top_p": 0.95},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 1.2, "top_k": 20_000, "top_p": 0.9},
    {"temperature": 2.0, "min_p": 0.001},
)


def flat_rows(policy: Policy, num_reqs: int, dtype: torch.dtype = torch.bfloat16) -> Verification:
    """N(0, 1), as of models with random weights, of which much is kept; the draft nearly agrees.

    Thresholds lie among thousands of logits.
    """
    noise = torch.Generator("cuda").manual_seed(num_reqs)
    target = torch.randn(num_reqs, 4, VOCAB_SIZE, generator=noise, device="cuda")
    draft = torch.randn(num_reqs, 3, VOCAB_SIZE, generator=noise, device="cuda")
    draft = (0.1 * draft + target[:, :3]).to(dtype)
    likely = draft.float().softmax(-1).flatten(0, 1)
    batch = VerifyBatch.dense(
        target_logits=target.to(dtype),
        draft_token_ids=torch.multinomial(likely, 1, generator=noise).view(num_reqs, 3),
        positions=torch.arange(num_reqs, device="cuda"),
        draft_logits=draft,
        # As other tests' batches have them, so that Triton's kernels are the same.
        slot_ids=torch.arange(num_reqs, device="cuda"),
    )
    wishes = tuple(SamplingParams(seed=i, **FLAT[i % len(FLAT)]) for i in range(num_reqs))
    return Verification(batch, wishes, SamplingTensors.stack(wishes, "cuda"), policy)


def many(policy: Policy, num_reqs: int, **recipe: Any) -> Verification:
    """Peaked and flat rows: how they are dealt out depends on how many there are."""
    some = [refused_batch(seed)[0] for seed in range(-(-num_reqs // 8))]
    draft_logits = [batch.draft_logits for batch in some if batch.draft_logits is not None]
    batch = VerifyBatch.dense(
        target_logits=torch.cat([batch.target_logits.view(8, 4, -1) for batch in some])[
            :num_reqs
        ].cuda(),
        draft_token_ids=torch.cat([batch.draft_token_ids for batch in some])[:num_reqs].cuda(),
        positions=torch.arange(num_reqs, device="cuda"),
        draft_logits=torch.cat(draft_logits)[:num_reqs].cuda(),
        slot_ids=torch.arange(num_reqs, device="cuda"),
    )
    wishes = tuple(
        SamplingParams(seed=i, temperature=(0.8, 1.0, 1.5, 3.0)[i % 4], **recipe)
        for i in range(num_reqs)
    )
    return Verification(batch, wishes, SamplingTensors.stack(wishes, "cuda"), policy)


FILTERED: dict[str, Any] = {"top_k": 50, "top_p": 0.9}
STEPS: Mapping[str, Callable[[], Verification]] = (
    {f"mixed, {policy.name}": partial(verification, policy) for policy in KINDS}
    | {
        f"no vector fits, {policy.name}": partial(verification, policy, vocab_size=50_257)
        for policy in LOSSLESS
    }
    | {f"{n} flat, {p.name}": partial(flat_rows, p, n) for p in LOSSLESS for n in (4, 40)}
    # The search for a threshold goes by digits, of which these have twice as many.
    | {
        f"{n} flat of all 32 bits": partial(flat_rows, Probabilistic(), n, torch.float32)
        for n in (4, 40)
    }
    | {
        f"{n} of {[*recipe]}, {policy.name}": partial(many, policy, n, **recipe)
        for policy in LOSSLESS
        for n in (64, 300)
        for recipe in ({}, FILTERED, {"top_p": 0.9})
    }
)


@every_fused_backend
@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_large_batches_have_the_reference_s_tokens(
    backend: str, make: Callable[[], Verification]
) -> None:
    step = make()
    assert_alike(step, step.by(backend), step.by("reference"))


@pytest.mark.parametrize("recipe", [FILTERED, {"top_p": 0.9}])
def test_a_wave_of_filtered_requests_is_the_same_again_and_again(recipe: dict[str, Any]) -> None:
    """CuPy gives each a CTA, whose warps read ahead of those that judge."""
    step = many(Probabilistic(), 256, **recipe)
    expected = step.by("cupy")
    for _ in range(100):
        assert torch.equal(step.by("cupy").token_ids, expected.token_ids)


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
    draft, wishes = target[:, 1:], wishes_of(num_reqs)
    drafts = torch.randint(vocab_size, (num_reqs, num_drafts), device="cuda", generator=noise)
    drafts[:, :8] = draft[:, :8].argmax(-1)
    positions = torch.arange(num_reqs, device="cuda")

    def of(some: slice) -> Verification:
        batch = VerifyBatch.dense(
            target_logits=target[some],
            draft_token_ids=drafts[some],
            positions=positions[some],
            draft_logits=draft[some],
        )
        params = SamplingTensors.stack(wishes[some], "cuda")
        return Verification(batch, wishes[some], params, Probabilistic())

    last = slice(num_reqs - 5, num_reqs)
    alone = of(last).by(backend)
    assert_identical(alone, of(slice(None)).by(backend), positions[last])
    assert_alike(of(last), alone, of(last).by("reference"))
