"""Tensors that no kernel can reach are refused by name."""

import pytest
import torch

from acceptor.core import (
    InvalidInputError,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)

triton_backend = pytest.importorskip("acceptor.backends.triton_backend")


def test_memory_of_the_host_is_refused() -> None:
    sampler = triton_backend.TritonSampler()
    params = SamplingTensors.stack([SamplingParams(seed=1)])
    position = torch.zeros(1, dtype=torch.int64)
    batch = VerifyBatch.dense(
        target_logits=torch.zeros(1, 2, 5),
        draft_token_ids=torch.zeros(1, 1, dtype=torch.int64),
        positions=position,
    )
    expected = "expected a CUDA device, or TRITON_INTERPRET=1 to simulate one, got cpu"
    with pytest.raises(InvalidInputError, match=f"^target_logits: {expected}$"):
        sampler.verify(batch, params, Strict())
    with pytest.raises(InvalidInputError, match=f"^logits: {expected}$"):
        sampler.sample(SampleBatch(logits=torch.zeros(1, 5), positions=position), params)
