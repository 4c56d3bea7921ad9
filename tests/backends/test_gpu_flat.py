"""On a GPU: rows of whose tokens much is kept, so that thresholds lie among thousands of logits."""

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
from kit.on_gpu import Verification, assert_alike, every_fused_backend

pytestmark = pytest.mark.gpu

VOCAB_SIZE = 151_936
RECIPES: tuple[dict[str, Any], ...] = (
    {"temperature": 1.5, "top_p": 0.95},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 1.2, "top_k": 20_000, "top_p": 0.9},
    {"temperature": 2.0, "min_p": 0.001},
)


def flat_rows(num_reqs: int, dtype: torch.dtype, policy: Policy) -> Verification:
    """N(0, 1), as of models with random weights; the draft nearly agrees."""
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
    wishes = tuple(SamplingParams(seed=i, **RECIPES[i % len(RECIPES)]) for i in range(num_reqs))
    return Verification(batch, wishes, SamplingTensors.stack(wishes, "cuda"), policy)


@every_fused_backend
@pytest.mark.parametrize(
    "policy", [Strict(), Probabilistic(), Block()], ids=lambda policy: policy.name
)
@pytest.mark.parametrize("num_reqs", [4, 40])
def test_flat_rows_have_the_reference_s_tokens(backend: str, policy: Policy, num_reqs: int) -> None:
    step = flat_rows(num_reqs, torch.bfloat16, policy)
    assert_alike(step, step.by(backend), step.by("reference"))


@pytest.mark.parametrize("num_reqs", [4, 40])
def test_flat_rows_of_all_32_bits(num_reqs: int) -> None:
    """The search for a threshold goes by digits, of which these have twice as many."""
    step = flat_rows(num_reqs, torch.float32, Probabilistic())
    assert_alike(step, step.by("cupy"), step.by("reference"))
