"""A Triton call's tensors: reachable by kernels, on one device, with memory that fits."""

from collections.abc import Callable

import pytest
import torch
from attrs import evolve

from acceptor.core import (
    Block,
    InvalidInputError,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingTensors,
    Strict,
    Typical,
    UnavailableError,
    VerifyBatch,
)
from kit.batches import dense, stacked

pytest.importorskip("triton")

from acceptor.backends.triton_backend import TritonSampler, device, launch
from acceptor.backends.triton_backend.plan import plan_of
from acceptor.backends.triton_backend.queue import MOST_ROUNDS
from acceptor.backends.triton_backend.thresholds.bins import BINS
from acceptor.backends.triton_backend.workspace import MIN_FRONT


def test_memory_of_the_host_is_refused() -> None:
    sampler, params, batch = TritonSampler(), stacked(1), dense(torch.zeros(1, 2, 5))
    expected = "expected a CUDA device, or TRITON_INTERPRET=1 to simulate one, got cpu"
    with pytest.raises(InvalidInputError, match=f"^target_logits: {expected}$"):
        sampler.verify(batch, params, Strict())
    with pytest.raises(InvalidInputError, match=f"^logits: {expected}$"):
        sampler.sample(SampleBatch(logits=torch.zeros(1, 5), positions=batch.positions), params)


def test_an_old_device_is_refused_by_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    expected = "backend triton: expected compute capability 8.0 or newer, got 7.5 on cuda:1"
    with pytest.raises(UnavailableError, match=f"^{expected}$"):
        device.check_reachable("logits", torch.device("cuda", 1))


def test_an_old_driver_is_named() -> None:
    def kernel(said: str) -> dict[tuple[int], Callable[[], None]]:
        def run() -> None:
            raise RuntimeError(said)

        return {(1,): run}

    too_old = "Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain"
    with pytest.raises(UnavailableError, match=r"^backend triton: expected a driver .*toolchain$"):
        launch.start(kernel(too_old), (1,))
    for said in ("Triton Error [CUDA]: out of memory", "something else"):
        with pytest.raises(RuntimeError, match=r"out of memory|something else"):
            launch.start(kernel(said), (1,))


NUM_REQS, NUM_DRAFTS, VOCAB_SIZE = 3, 2, 5000
NUM_BLOCKS = -(-VOCAB_SIZE // 512)
POLICIES: list[Policy] = [Strict(), Probabilistic(), Block(), Typical()]


def batch() -> VerifyBatch:
    target_logits = torch.zeros(NUM_REQS, NUM_DRAFTS + 1, VOCAB_SIZE)
    return dense(target_logits, draft_logits=target_logits[:, :NUM_DRAFTS].contiguous())


def params(top_p: float) -> SamplingTensors:
    return stacked(NUM_REQS, top_p=top_p, logprobs=1)


def counting() -> tuple[TritonSampler, list[object]]:
    """A sampler that launches nothing, and the launches that it would make."""
    launched: list[object] = []
    return TritonSampler(lambda kernel, *_, **__: launched.append(kernel), overlap=False), launched


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_workspace_holds_few_numbers_per_block_side_by_side(policy: Policy, top_p: float) -> None:
    size = TritonSampler().verify_workspace_size(batch(), params(top_p), policy)
    num_rows = NUM_REQS * (2 * NUM_DRAFTS + 1)
    per_row = 4 * (4 * NUM_BLOCKS + 64)
    per_row += 4 * (BINS.value + MOST_ROUNDS.value) * (top_p < 1)
    assert size <= MIN_FRONT + num_rows * per_row
    layout, end = plan_of(batch(), params(top_p), policy).layout, 0
    for first, length, _ in layout.parts.values():
        assert first >= end
        end = first + length
    assert end <= layout.size == size


def test_more_than_kernels_can_hold_is_refused() -> None:
    many = SampleBatch(logits=torch.zeros(1, 2**19), positions=torch.zeros(1, dtype=torch.int64))
    with pytest.raises(UnavailableError, match=r"^vocab_size: .* at most 524287 .*got 524288$"):
        plan_of(many, params(0.9))
    biased = stacked(1, logit_bias=dict.fromkeys(range(2**18 + 1), 1.0))
    with pytest.raises(UnavailableError, match=r"^logit_bias: .* at most 262144 .*got 262145$"):
        plan_of(many, biased)


def test_unfit_memory_is_refused_before_anything_is_launched() -> None:
    sampler, launched = counting()
    call = batch(), params(0.9), Strict()
    size, whole = sampler.verify_workspace_size(*call), sampler.verify(*call)
    launched.clear()
    short = torch.zeros(size - 1, dtype=torch.uint8)
    with pytest.raises(InvalidInputError, match=rf"workspace.shape.*: expected a .* \[{size}, "):
        sampler.verify(*call, workspace=short)
    with pytest.raises(InvalidInputError, match=r"^out.token_ids"):
        sampler.verify(*call, out=evolve(whole, token_ids=whole.token_ids.int()))
    assert not launched


@pytest.mark.parametrize(
    ("policy", "top_p", "num_launches"),
    [
        (Strict(), 1.0, 2),
        (Probabilistic(), 1.0, 2),
        (Block(), 1.0, 3),
        (Probabilistic(), 0.9, 4),
        (Block(), 0.9, 5),
    ],
)
def test_verification_takes_few_launches(policy: Policy, top_p: float, num_launches: int) -> None:
    sampler, launched = counting()
    sampler.verify(batch(), stacked(NUM_REQS, top_p=top_p), policy)
    assert len(launched) == num_launches
