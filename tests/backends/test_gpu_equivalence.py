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

from acceptor.core import Block, Policy, Probabilistic, Strict
from kit.on_gpu import (
    FUSED,
    KINDS,
    Verification,
    assert_alike,
    every_fused_backend,
    sampler_of,
    verification,
)

pytestmark = pytest.mark.gpu

LOSSLESS = (Strict(), Probabilistic(), Block())
FLAT: tuple[dict[str, Any], ...] = (
    {"temperature": 1.5, "top_p": 0.95},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 1.2, "top_k": 20_000, "top_p": 0.9},
    {"temperature": 2.0, "min_p": 0.001},
)
WARM = tuple({"temperature": temperature} for temperature in (0.8, 1.0, 1.5, 3.0))
FILTERED: dict[str, Any] = {"top_k": 50, "top_p": 0.9}


def many(policy: Policy, num_reqs: int, **recipe: Any) -> Verification:
    how: dict[str, Any] = {"vocab_size": 17_160, "inputs": "mixed", "recipes": WARM}
    return verification(policy, num_reqs=num_reqs, **how, **recipe)


STEPS: Mapping[str, Callable[[], Verification]] = (
    {f"mixed, {policy.name}": partial(verification, policy) for policy in KINDS}
    | {
        f"no vector fits, {policy.name}": partial(verification, policy, vocab_size=50_257)
        for policy in LOSSLESS
    }
    # Thresholds lie among thousands of logits.
    | {
        f"{n} flat, {policy.name}": partial(
            verification, policy, num_reqs=n, inputs="flat", recipes=FLAT
        )
        for policy in LOSSLESS
        for n in (4, 40)
    }
    # The search for a threshold goes by digits, of which these have twice as many.
    | {
        f"{n} flat of all 32 bits": partial(
            verification, Probabilistic(), num_reqs=n, inputs="flat", recipes=FLAT, dtype="float32"
        )
        for n in (4, 40)
    }
    # Peaked and flat rows: how they are dealt out depends on how many there are.
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
    options = ["--backend", backend, "--device", "cuda", "--batches", "2"]
    options += ["--max-vocab-size", "5001"] + ["--may-wait"] * (backend == "reference")
    calm = ["-q", "-W", "default", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *calm, *plugin, *options, *suite],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
