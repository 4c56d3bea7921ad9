"""Watched calls: moving values to a device, writes that are found, and two backends compared."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.conformance import Case, Findings, Generator
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.inputs import make_inputs
from acceptor.backends.conformance.run import Check, run_all
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    Strict,
    VerifyBatch,
    VerifyOutput,
)
from acceptor.core.tensor_fields import mapped
from kit.only_strict import OnlyStrict

META = torch.device("meta")
CASE = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 1), features=frozenset({"strides", "slots"}))


def test_everything_but_tensors_stays() -> None:
    batch = make_inputs(CASE).with_arbitrary_drafts().verify_batch()
    got, number = mapped((batch, 3), lambda tensor: tensor.to("meta"))
    assert (type(got), got.token_counts, number) == (VerifyBatch, None, 3)
    for name in ("target_logits", "slot_ids"):
        new, old = getattr(got, name), getattr(batch, name)
        assert (new.is_meta, new.shape, new.dtype) == (True, old.shape, old.dtype)


class Backend(Sampler):
    """Returns meaningless answers, and does something to its inputs."""

    def __init__(self, change: Callable[[VerifyBatch], object] = lambda _: None) -> None:
        self.change = change
        self.seen: list[VerifyBatch] = []

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **_: Any
    ) -> VerifyOutput:
        assert params.num_reqs == batch.num_reqs
        assert policy == Strict()
        self.seen.append(batch)
        self.change(batch)
        fresh = torch.empty(batch.num_reqs, 3, dtype=torch.int64)
        few = torch.zeros(batch.num_reqs, dtype=torch.int32)
        return VerifyOutput(fresh, few, few, None, None)

    def sample(self, batch: SampleBatch, params: SamplingTensors, **_: Any) -> SampleOutput:
        raise NotImplementedError


def verified(backend: Backend, device: str = "cpu", *, is_variation: bool = False) -> Watched:
    inputs = make_inputs(CASE).with_arbitrary_drafts()
    watched = Watched(backend, torch.device(device))
    params = SamplingTensors.stack(inputs.params)
    watched.call(inputs.verify_batch(), params, Strict(), is_variation=is_variation)
    return watched


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda _: None, []),
        (lambda batch: batch.positions.add_(1), ["input positions"]),
        (
            lambda batch: batch.target_logits.as_strided((1,), (1,), 7).zero_(),
            ["input target_logits"],
        ),
        (
            lambda batch: batch.draft_token_ids.untyped_storage().resize_(0),
            ["input draft_token_ids"],
        ),
    ],
    ids=["nothing", "written", "written between rows", "emptied"],
)
def test_changed_input_is_named(change: Callable[[VerifyBatch], object], names: list[str]) -> None:
    assert [d.decision for d in verified(Backend(change)).findings.differences] == names


def test_memory_is_dirty_in_a_variation_which_is_not_kept() -> None:
    dirty, clean = verified(Backend(), is_variation=True), verified(Backend())
    assert dirty.outputs == []
    assert len(clean.outputs) == 1
    seen: list[Tensor] = []

    def allocate(batch: VerifyBatch) -> None:
        seen.extend((torch.empty(3), batch.positions.new_empty(3), torch.empty_like(seen[0])))

    seen.append(torch.zeros(3, dtype=torch.bool))
    verified(Backend(allocate), is_variation=True)
    assert seen[1].isnan().all()
    assert (seen[2] == torch.iinfo(torch.int64).max).all()
    assert seen[3].all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
def test_tensors_lie_on_a_device_as_they_did_and_outputs_must() -> None:
    backend = Backend()
    watched = verified(backend, "cuda")
    (there,), here = backend.seen, make_inputs(CASE).with_arbitrary_drafts().verify_batch()
    for name in ("target_logits", "positions", "slot_ids", "draft_token_ids"):
        new, old = getattr(there, name), getattr(here, name)
        assert (new.device.type, new.stride(), new.dtype) == ("cuda", old.stride(), old.dtype)
        assert torch.equal(new.cpu(), old)
    assert {d.decision.split()[0] for d in watched.findings.differences} == {"device"}


REFERENCE = ReferenceSampler()


def run(case: Case, *backends: Sampler) -> tuple[Findings, ...]:
    return run_all(Check(case), [Watched(backend) for backend in backends])


def test_the_reference_agrees_with_itself() -> None:
    for case in Generator(largest_vocabulary=60).cases(24, 6):
        first, second, compared = run(case, REFERENCE, REFERENCE)
        assert first == second == compared
        assert compared.differences == ()
    assert len(run(Case(), REFERENCE)) == 1


def test_a_policy_that_one_lacks_is_not_compared() -> None:
    found = run(Case(policy=Probabilistic()), REFERENCE, OnlyStrict())
    assert [(each.num_batches, each.num_unsupported) for each in found] == [(1, 0), (0, 1), (0, 1)]


class Broken(ReferenceSampler):
    def verify(self, *call: Any, **memory: Any) -> VerifyOutput:
        raise RuntimeError(f"out of luck: {len(call)}, {len(memory)}")


class DraftsOtherwise(ReferenceSampler):
    """Draws the draft's last token, whatever the logits say, but verifies correctly."""

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        output = super().sample(batch, params, **memory)
        if batch.draft_index is None:
            return output
        return evolve(output, token_ids=torch.full_like(output.token_ids, 6))


def test_what_only_one_answers_is_a_difference() -> None:
    compared = run(Case(), REFERENCE, Broken())[2]
    assert [difference.decision for difference in compared.unexplained] == ["answers"]


def test_both_verify_the_drafts_of_the_first() -> None:
    case = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 2, 2), policy=Probabilistic())
    watched = [Watched(DraftsOtherwise()), Watched(REFERENCE)]
    run_all(Check(case), watched)
    verified = [watched[place].outputs[-1] for place in (0, 1)]
    assert torch.equal(verified[0].token_ids, verified[1].token_ids)
