"""A direct caller's tensors on a CUDA device that is not the current one."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from acceptor.core import Probabilistic, SamplingParams, SamplingTensors, VerifyBatch, VerifyOutput
from kit.on_gpu import sampler_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
NUM_REQS, NUM_SPEC_TOKENS, VOCAB_SIZE = 8, 3, 32_000


def verified(backend: str, device: str) -> VerifyOutput:
    generator = torch.Generator().manual_seed(0)
    target, draft = (
        torch.randn(NUM_REQS, num_rows, VOCAB_SIZE, generator=generator).mul(3).to(device)
        for num_rows in (NUM_SPEC_TOKENS + 1, NUM_SPEC_TOKENS)
    )
    params = SamplingTensors.stack([SamplingParams(seed=seed) for seed in range(NUM_REQS)], device)
    batch = VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=draft.argmax(-1),
        positions=torch.arange(NUM_REQS, device=device),
        draft_logits=draft,
    )
    return sampler_of(backend).verify(batch, params, Probabilistic())


@pytest.mark.parametrize(
    ("backend", "within"),
    [("cupy", nullcontext()), ("cupy", torch.cuda.device(1)), ("triton", torch.cuda.device(1))],
    ids=["cupy, another is current", "cupy", "triton"],
)
def test_the_tokens_are_those_of_the_first_device(
    backend: str, within: AbstractContextManager[object]
) -> None:
    """Several steps on the default stream, of which each reads what the one before has left."""
    expected = verified(backend, "cuda:0")
    with within:
        outputs = [verified(backend, "cuda:1") for _ in range(3)]
    for output in outputs:
        assert output.token_ids.device.index == 1
        assert torch.equal(output.token_ids.cpu(), expected.token_ids.cpu())
        assert torch.equal(output.num_accepted.cpu(), expected.num_accepted.cpu())
