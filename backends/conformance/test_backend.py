"""The suite that a backend must pass: `pytest --pyargs acceptor.backends.conformance`.

Imports are absolute because pytest imports this file outside its package.
"""

from collections.abc import Callable

import pytest
import torch

from acceptor.backends.conformance import (
    Findings,
    Tally,
    cases,
    first_failure,
    policies,
    run_chunk,
)
from acceptor.backends.conformance.corners import Corner, corners
from acceptor.backends.conformance.far_rows import check_far_draft_slots, check_far_target_rows
from acceptor.backends.conformance.strategies import POLICIES
from acceptor.core import (
    InvalidInputError,
    SampleBatch,
    Sampler,
    SamplingParams,
    SamplingTensors,
    Strict,
    UnavailableError,
    VerifyBatch,
)


@pytest.mark.parametrize("policy", [*POLICIES])
def test_random_batches(
    policy: str,
    sampler: Sampler,
    device: torch.device,
    tally: Tally,
    pytestconfig: pytest.Config,
) -> None:
    size, chunk = pytestconfig.getoption("--batches"), pytestconfig.getoption("--chunk")
    strategy = cases(policies([policy]), pytestconfig.getoption("--max-vocab-size"))
    found = run_chunk(sampler, device, chunk, size, strategy)
    tally.include(found)
    if found.failures:
        failure = first_failure(sampler, device, chunk, size, strategy)
        pytest.fail(str(failure), pytrace=False)
    if not found.num_batches:
        pytest.skip("the backend lacks this policy")


@pytest.mark.parametrize("corner", [*corners()], ids=lambda corner: corner.name)
def test_corner(corner: Corner, sampler: Sampler, device: torch.device, tally: Tally) -> None:
    explain(corner.name, corner.check, sampler, device, tally)


@pytest.mark.parametrize("check", [check_far_target_rows, check_far_draft_slots])
def test_more_than_2_to_the_31_logits(
    check: Callable[[Sampler, torch.device], Findings],
    sampler: Sampler,
    device: torch.device,
    tally: Tally,
) -> None:
    explain(check.__name__, check, sampler, device, tally)


def explain(
    name: str,
    check: Callable[[Sampler, torch.device], Findings],
    sampler: Sampler,
    device: torch.device,
    tally: Tally,
) -> None:
    try:
        findings = check(sampler, device)
    except UnavailableError as error:
        pytest.skip(str(error))
    tally.add(name, findings)
    assert not findings.unexplained, "\n".join(map(str, findings.unexplained))


@pytest.mark.parametrize("on", ["the device", "meta"])
def test_parameters_of_another_batch_are_refused_unread(
    on: str, sampler: Sampler, device: torch.device
) -> None:
    # Tensors on meta have no values: whoever looks at one fails in another way.
    device = torch.device("meta") if on == "meta" else device
    two = SamplingTensors.stack([SamplingParams(seed=1), SamplingParams(seed=2)], device)
    with pytest.raises(InvalidInputError):
        sampler.verify(one_request(device), two, Strict())
    with pytest.raises(InvalidInputError):
        sampler.sample(one_row(device), two)


@pytest.mark.parametrize("on", ["the device", "meta"])
def test_penalties_without_counts_are_refused_unread(
    on: str, sampler: Sampler, device: torch.device
) -> None:
    device = torch.device("meta") if on == "meta" else device
    penalised = SamplingTensors.stack([SamplingParams(seed=1, presence_penalty=1.0)], device)
    with pytest.raises(InvalidInputError):
        sampler.verify(one_request(device), penalised, Strict())
    with pytest.raises(InvalidInputError):
        sampler.sample(one_row(device), penalised)


@pytest.mark.parametrize("on", ["the device", "meta"])
def test_more_logprobs_than_tokens_are_refused_unread(
    on: str, sampler: Sampler, device: torch.device
) -> None:
    device = torch.device("meta") if on == "meta" else device
    asking = SamplingTensors.stack([SamplingParams(seed=1, logprobs=10**9)], device)
    with pytest.raises(InvalidInputError):
        sampler.verify(one_request(device), asking, Strict())
    with pytest.raises(InvalidInputError):
        sampler.sample(one_row(device), asking)


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
