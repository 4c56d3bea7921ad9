"""Batches with a real vocabulary on a CUDA device, to compare fused backends with the reference."""

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.app.bench.kernels.inputs import Logits, make_step
from acceptor.app.bench.kernels.workload import Workload
from acceptor.backends import load_sampler
from acceptor.backends.conformance import judge_verify
from acceptor.core import (
    POLICIES,
    Policy,
    Sampler,
    SamplingParams,
    SamplingTensors,
    Strict,
    UnavailableError,
    VerifyBatch,
    VerifyOutput,
)

FUSED = ("triton", "cupy")
KINDS = tuple(policy for policy in POLICIES.values() if policy != Strict(coupled=True))
"""Without coupled drafts, which are verified like others."""

MIXED: tuple[dict[str, float], ...] = (
    {"temperature": 0.8},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    {"temperature": 0.0},
    {"temperature": 1.3, "top_p": 0.95},
    {"temperature": 0.7, "min_p": 0.05},
)
"""Recipes that alternate within one batch."""

every_fused_backend = pytest.mark.parametrize("backend", FUSED)
every_policy = pytest.mark.parametrize("policy", KINDS)


@frozen(eq=False)
class Verification:
    """The arguments of one `verify`, and the sampling parameters behind them."""

    batch: VerifyBatch
    sampling_params: tuple[SamplingParams, ...]
    params: SamplingTensors
    policy: Policy

    def by(self, backend: str, **more: Any) -> VerifyOutput:
        """Verify; skips the test if the backend lacks something."""
        sampler: Any = sampler_of(backend)
        try:
            output: VerifyOutput = sampler.verify(self.batch, self.params, self.policy, **more)
        except UnavailableError as error:
            pytest.skip(str(error))
        return output


@cache
def sampler_of(backend: str) -> Sampler:
    """One sampler for all tests: it keeps its compiled kernels. Skips if something is missing."""
    try:
        return load_sampler(backend)
    except UnavailableError as error:
        pytest.skip(str(error))


def sampling_params_of(
    num_reqs: int, recipes: Sequence[Mapping[str, float]] = MIXED, **changes: Any
) -> tuple[SamplingParams, ...]:
    """Recipes in turn, each request with its own seed."""
    return tuple(
        SamplingParams(seed=1000 + i, **{**recipes[i % len(recipes)], **changes})
        for i in range(num_reqs)
    )


def verification(
    policy: Policy,
    *,
    num_reqs: int = 10,
    num_spec_tokens: int = 3,
    vocab_size: int = 151_936,
    dtype: str = "bfloat16",
    inputs: str = "lm",
    **settings: Any,
) -> Verification:
    """A batch of such inputs, its drafts drawn at temperature 0.8."""
    noise = torch.Generator("cuda").manual_seed(vocab_size + num_reqs)
    workload = Workload(
        num_reqs=num_reqs,
        num_spec_tokens=num_spec_tokens,
        vocab_size=vocab_size,
        dtype=dtype,
        inputs=inputs,
    )
    step = make_step(workload, Logits.random(workload, noise), noise, load_sampler("reference"))
    numbers = torch.arange(num_reqs, device="cuda")
    batch = evolve(step.batch, positions=numbers, slot_ids=numbers)
    wanted = sampling_params_of(num_reqs, **settings)
    return Verification(batch, wanted, SamplingTensors.stack(wanted, "cuda"), policy)


def assert_alike(step: Verification, got: VerifyOutput, expected: VerifyOutput) -> None:
    """Assert equal tokens, except for near-ties by the contract's oracle."""
    tensors = attrgetter("token_ids", "num_accepted", "status")
    if all(map(torch.equal, tensors(got), tensors(expected))):
        return
    found = judge_verify(step.batch, step.params, step.policy, got)
    assert not found.unexplained, "\n".join(map(str, found.unexplained))


def assert_identical(got: VerifyOutput, expected: VerifyOutput, places: Tensor) -> None:
    """Assert that request i of `got` is request places[i] of `expected`, bit for bit."""
    width = min(got.token_ids.shape[1], expected.token_ids.shape[1])
    assert torch.equal(got.token_ids[:, :width], expected.token_ids[places, :width])
    assert (got.token_ids[:, width:] == -1).all()
    assert torch.equal(got.num_accepted, expected.num_accepted[places])
    assert torch.equal(got.status, expected.status[places])


def reserved(backend: str, step: Verification) -> dict[str, Any]:
    """The `workspace` and `out` of a call that must not allocate; `out` holds a first result."""
    size = sampler_of(backend).verify_workspace_size(step.batch, step.params, step.policy)
    workspace = torch.zeros(size, dtype=torch.uint8, device="cuda")
    return {"out": step.by(backend), "workspace": workspace}
