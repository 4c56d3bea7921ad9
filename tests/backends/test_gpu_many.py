"""On a GPU: many requests at once, with peaked and flat rows, have the reference's tokens.

How rows are dealt out depends on how many there are; small batches never see some of it.
"""

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
from kit.on_gpu import Verification, assert_alike, every_fused_backend

pytestmark = pytest.mark.gpu

RECIPES: dict[str, dict[str, Any]] = {
    "unfiltered": {},
    "top-k and top-p": {"top_k": 50, "top_p": 0.9},
    "top-p": {"top_p": 0.9},
}


def many(policy: Policy, num_reqs: int, recipe: str) -> Verification:
    """Rows of `refused_batch`, whose temperatures reach from 0.8 to 3."""
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
        SamplingParams(seed=i, temperature=(0.8, 1.0, 1.5, 3.0)[i % 4], **RECIPES[recipe])
        for i in range(num_reqs)
    )
    return Verification(batch, wishes, SamplingTensors.stack(wishes, "cuda"), policy)


@every_fused_backend
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("num_reqs", [64, 300])
@pytest.mark.parametrize(
    "policy", [Strict(), Probabilistic(), Block()], ids=lambda policy: policy.name
)
def test_many_requests_have_the_reference_s_tokens(
    backend: str, policy: Policy, num_reqs: int, recipe: str
) -> None:
    step = many(policy, num_reqs, recipe)
    assert_alike(step, step.by(backend), step.by("reference"))


@pytest.mark.parametrize("recipe", ["top-k and top-p", "top-p"])
def test_a_wave_of_filtered_requests_is_the_same_again_and_again(recipe: str) -> None:
    """CuPy gives each a CTA, whose warps read ahead of those that judge."""
    step = many(Probabilistic(), 256, recipe)
    expected = step.by("cupy")
    assert_alike(step, expected, step.by("reference"))
    for _ in range(100):
        assert torch.equal(step.by("cupy").token_ids, expected.token_ids)
