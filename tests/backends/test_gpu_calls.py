"""On a GPU, calls are the same when captured, called again, overlapping, and on other devices."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from acceptor.core import Block, Policy, Probabilistic, SampleBatch, Strict, VerifyOutput
from acceptor.core.tensor_fields import mapped
from kit.on_gpu import assert_identical, every_fused_backend, reserved, sampler_of, verification

pytestmark = pytest.mark.gpu

some = pytest.mark.parametrize("policy", [Probabilistic(), Strict(), Block()])
NUM_REQS = 10


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Capture the call as a graph, after a run on the same stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph


@every_fused_backend
@some
def test_a_captured_verify_replays_with_new_inputs(backend: str, policy: Policy) -> None:
    step = verification(policy, num_reqs=NUM_REQS)
    results: list[VerifyOutput] = []
    graph = captured(lambda: results.append(step.by(backend)))
    other = verification(policy, num_reqs=NUM_REQS)
    assert step.batch.draft_logits is not None
    assert other.batch.draft_logits is not None
    for shift in (5, 77):
        step.batch.target_logits.copy_(other.batch.target_logits.roll(shift, -1))
        step.batch.draft_logits.copy_(other.batch.draft_logits.roll(shift, -1))
        step.batch.draft_token_ids.copy_((other.batch.draft_token_ids + shift) % 151_936)
        graph.replay()
        torch.cuda.synchronize()
        replayed = results[-1]
        tokens, accepted = replayed.token_ids.clone(), replayed.num_accepted.clone()
        expected = step.by(backend)
        assert torch.equal(tokens, expected.token_ids)
        assert torch.equal(accepted, expected.num_accepted)
        assert (expected.num_accepted > 0).any()


@every_fused_backend
@pytest.mark.parametrize("draft_index", [None, 1])
def test_a_captured_sample_replays_with_new_logits(backend: str, draft_index: int | None) -> None:
    step = verification(Probabilistic(), num_reqs=NUM_REQS)
    logits = step.batch.target_logits[:NUM_REQS].clone()
    batch = SampleBatch(logits=logits, positions=step.batch.positions, draft_index=draft_index)
    sampler = sampler_of(backend)
    results = []
    graph = captured(lambda: results.append(sampler.sample(batch, step.params)))
    logits.copy_(logits.roll(1000, -1))
    graph.replay()
    torch.cuda.synchronize()
    tokens = results[-1].token_ids.clone()
    assert torch.equal(tokens, sampler.sample(batch, step.params).token_ids)
    assert torch.equal(tokens, sampler_of("reference").sample(batch, step.params).token_ids)


@every_fused_backend
@some
def test_a_call_into_reserved_memory_allocates_nothing(backend: str, policy: Policy) -> None:
    step = verification(policy, num_reqs=NUM_REQS)
    expected = step.by(backend)
    more = reserved(backend, step)
    step.by(backend, **more)
    torch.cuda.synchronize()
    more["out"].token_ids.fill_(-7)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    output = step.by(backend, **more)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert_identical(output, expected, torch.arange(NUM_REQS, device="cuda"))


@every_fused_backend
def test_calls_on_two_streams_do_not_disturb_each_other(backend: str) -> None:
    steps = [verification(Probabilistic(), num_reqs=n) for n in (NUM_REQS, 30)]
    expected = [step.by(backend) for step in steps]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    outputs = []
    for _ in range(5):
        for step, stream in zip(steps, streams, strict=True):
            with torch.cuda.stream(stream):
                outputs.append(step.by(backend))
    torch.cuda.synchronize()
    for output, same in zip(outputs, expected * 5, strict=True):
        assert_identical(output, same, torch.arange(len(same.token_ids), device="cuda"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
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


@some
@pytest.mark.parametrize("overlap", [False, True], ids=["one by one", "overlapping"])
def test_later_calls_and_overlapping_stages_of_triton_give_the_tokens_of_first_calls(
    policy: Policy, *, overlap: bool
) -> None:
    triton_backend = pytest.importorskip("acceptor.backends.triton_backend")
    sampler = triton_backend.TritonSampler(overlap=overlap)
    for num_reqs in (1, 16, 64, 10):
        step = verification(policy, num_reqs=num_reqs)
        call = step.batch, step.params, step.policy
        expected = triton_backend.TritonSampler(overlap=False).verify(*call)
        everything = torch.arange(num_reqs, device="cuda")
        for got in [sampler.verify(*call) for _ in range(20)]:
            assert_identical(got, expected, everything)
