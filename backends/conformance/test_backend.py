"""The suite that a backend must pass: `pytest --pyargs acceptor.backends.conformance`.

Imports are absolute because pytest imports this file outside its package.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from acceptor.backends.conformance import Findings, Generator, judge_verify
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.campaign import Campaign
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.findings import listing
from acceptor.backends.conformance.run import run_all
from acceptor.core import (
    POLICIES,
    InvalidInputError,
    Probabilistic,
    SampleBatch,
    Sampler,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)


@pytest.mark.parametrize("policy", [*POLICIES])
def test_random_batches(
    policy: str, device: torch.device, found: list[Findings], pytestconfig: pytest.Config
) -> None:
    size, option = pytestconfig.getoption("--batches"), pytestconfig.getoption
    generator = Generator((policy,), option("--max-vocab-size"))
    campaign = Campaign((str(option("--backend")),), str(device), generator, chunk=size)
    found += campaign.found(option("--chunk"), size)
    if found[-1].unexplained:
        smallest = campaign.smallest_failure(found[-1].unexplained[0])
        pytest.fail(listing(smallest), pytrace=False)
    if not found[-1].num_batches:
        pytest.skip("the backend lacks this policy")


@pytest.mark.parametrize("name", dict(corners()))
def test_corner(name: str, sampler: Sampler, device: torch.device, found: list[Findings]) -> None:
    found += run_all(dict(corners())[name], [Watched(sampler, device)])
    if found[-1].num_unsupported:
        pytest.skip("the backend lacks this policy")
    assert not found[-1].unexplained, "\n".join(map(str, found[-1].unexplained))


@pytest.mark.parametrize("far", ["target rows", "draft slots"])
def test_more_than_2_to_the_31_logits(
    far: str, sampler: Sampler, device: torch.device, found: list[Findings]
) -> None:
    """A host allocates pages only when they are written, so rows far apart cost little memory."""
    target = rows_of(4, 2**30 if far == "target rows" else 1000, device)
    draft = rows_of(4, 2**30 if far == "draft slots" else 1000, device)
    batch = VerifyBatch(
        target_logits=target,
        cu_num_logits=torch.tensor([0, 2, 4], device=device),
        draft_token_ids=torch.tensor([[7], [11]], device=device),
        positions=torch.tensor([5, 6], device=device),
        draft_logits=draft[:, None],
        slot_ids=torch.tensor([2, 3], device=device),
    )
    params = SamplingTensors.stack([SamplingParams(seed=1), SamplingParams(seed=2)], device)
    output = sampler.verify(batch, params, Probabilistic())
    found.append(judge_verify(batch, params, Probabilistic(), output))
    assert not found[-1].unexplained, "\n".join(map(str, found[-1].unexplained))


def rows_of(count: int, stride: int, device: torch.device) -> Tensor:
    rows = torch.randn(count, 1000, generator=torch.Generator().manual_seed(stride))
    everything = torch.empty(stride * (count - 1) + 1000, dtype=torch.bfloat16, device=device)
    return everything.as_strided(rows.shape, (stride, 1)).copy_(rows)


@pytest.mark.parametrize("on", ["the device", "meta"])
@pytest.mark.parametrize(
    ("num_reqs", "wanted"),
    [(2, {}), (1, {"presence_penalty": 1.0}), (1, {"logprobs": 10**9})],
    ids=["parameters of another batch", "penalties without counts", "more logprobs than tokens"],
)
def test_wrong_parameters_are_refused_unread(
    num_reqs: int, wanted: dict[str, Any], on: str, sampler: Sampler, device: torch.device
) -> None:
    # Tensors on meta have no values: reading one raises another error.
    device = torch.device("meta") if on == "meta" else device
    params = SamplingTensors.stack([SamplingParams(seed=1, **wanted)] * num_reqs, device)
    with pytest.raises(InvalidInputError):
        sampler.verify(one_request(device), params, Strict())
    with pytest.raises(InvalidInputError):
        sampler.sample(one_row(device), params)


def test_no_call_waits_for_the_device(
    sampler: Sampler, device: torch.device, pytestconfig: pytest.Config
) -> None:
    if device.type != "cuda" or pytestconfig.getoption("--may-wait"):
        pytest.skip("needs a CUDA device, and a backend that promises not to wait")
    params = SamplingTensors.stack([SamplingParams(seed=1)], device)
    batch, row = one_request(device), one_row(device)
    for mode in ("default", "error"):
        # The first round compiles, which may wait.
        torch.cuda.set_sync_debug_mode(mode)
        try:
            sampler.verify(batch, params, Strict())
            sampler.sample(row, params)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def one_request(device: torch.device) -> VerifyBatch:
    return VerifyBatch(
        target_logits=torch.zeros(2, 5, device=device),
        cu_num_logits=torch.tensor([0, 2], device=device),
        draft_token_ids=torch.tensor([[1]], device=device),
        positions=torch.tensor([3], device=device),
    )


def one_row(device: torch.device) -> SampleBatch:
    return SampleBatch(
        logits=torch.zeros(1, 5, device=device), positions=torch.tensor([3], device=device)
    )
