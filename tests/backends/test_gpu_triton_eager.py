"""On a GPU: what saves time between Triton's stages and calls changes no token."""

from typing import Any

import pytest
import torch

from acceptor.core import Block, Policy, Probabilistic, Strict, VerifyOutput
from kit.on_gpu import Verification, assert_identical, verification

pytestmark = pytest.mark.gpu

triton_backend = pytest.importorskip("acceptor.backends.triton_backend")
SIZES = (1, 16, 64, 10)
CALLS = 20


def verify(sampler: Any, step: Verification) -> VerifyOutput:
    output: VerifyOutput = sampler.verify(step.batch, step.params, step.policy)
    return output


@pytest.mark.parametrize("policy", [Probabilistic(), Strict(), Block()])
@pytest.mark.parametrize("overlap", [False, True], ids=["one by one", "overlapping"])
def test_later_calls_and_overlapping_stages_give_the_tokens_of_first_calls(
    policy: Policy, *, overlap: bool
) -> None:
    sampler = triton_backend.TritonSampler(overlap=overlap)
    for num_reqs in SIZES:
        step = verification(policy, num_reqs=num_reqs)
        expected = verify(triton_backend.TritonSampler(overlap=False), step)
        everything = torch.arange(num_reqs, device="cuda")
        for got in [verify(sampler, step) for _ in range(CALLS)]:
            assert_identical(got, expected, everything)
