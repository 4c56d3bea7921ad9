"""On a GPU: calls can be captured, wait for nothing, and allocate nothing if they need not."""

from collections.abc import Callable

import pytest
import torch

from acceptor.core import Block, Policy, Probabilistic, SampleBatch, Strict, VerifyOutput
from kit.on_gpu import assert_identical, every_fused_backend, reserved, sampler_of, verification

pytestmark = pytest.mark.gpu

some = pytest.mark.parametrize("policy", [Probabilistic(), Strict(), Block()])
NUM_REQS = 10


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The call as a graph; it ran before, on the same stream."""
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


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@every_fused_backend
@some
def test_no_call_waits_for_the_device(backend: str, policy: Policy) -> None:
    step = verification(policy, num_reqs=NUM_REQS)
    row = SampleBatch(logits=step.batch.target_logits[:NUM_REQS], positions=step.batch.positions)
    step.by(backend)
    sampler_of(backend).sample(row, step.params)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.by(backend)
        sampler_of(backend).sample(row, step.params)
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
    for place, output in enumerate(outputs):
        same = expected[place % 2]
        assert_identical(output, same, torch.arange(len(same.token_ids), device="cuda"))
