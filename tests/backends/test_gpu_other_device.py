"""A direct caller's tensors on a CUDA device that is not the current one."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from acceptor.core import Probabilistic
from acceptor.core.tensor_fields import mapped
from kit.on_gpu import sampler_of, verification

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize(
    ("backend", "within"),
    [("cupy", nullcontext()), ("cupy", torch.cuda.device(1)), ("triton", torch.cuda.device(1))],
    ids=["cupy, another is current", "cupy", "triton"],
)
def test_the_tokens_are_those_of_the_first_device(
    backend: str, within: AbstractContextManager[object]
) -> None:
    """Several steps on the default stream, of which each reads what the one before has left."""
    step = verification(Probabilistic(), num_reqs=8, vocab_size=32_000)
    expected, sampler = step.by(backend), sampler_of(backend)
    batch, params = mapped((step.batch, step.params), lambda tensor: tensor.to("cuda:1"))
    with within:
        outputs = [sampler.verify(batch, params, step.policy) for _ in range(3)]
    for output in outputs:
        assert output.token_ids.device.index == 1
        assert torch.equal(output.token_ids.cpu(), expected.token_ids.cpu())
        assert torch.equal(output.num_accepted.cpu(), expected.num_accepted.cpu())
