"""Samplers whose inputs and answers are copied for every call say what they would say anyway."""

from typing import Any

import pytest
import torch

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.run import each_case
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Policy,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
    VerifyOutput,
)
from kit.equivalence.compare import compare_case
from kit.equivalence.forms import forms
from kit.equivalence.on_device import ALIGNMENT, BETWEEN, Memory, OnDevice

CPU = torch.device("cpu")
REFERENCE = ReferenceSampler()


@pytest.mark.parametrize("number", [0, 10, 13, 19])
def test_nothing_is_lost_on_the_way(number: int) -> None:
    def compare(case: Case) -> None:
        direct, copied = (
            compare_case(case, (some,), CPU) for some in (REFERENCE, OnDevice(REFERENCE, CPU))
        )
        assert direct == copied

    each_case(compare, number, 5, [*forms(3)][number].cases)


def test_tensors_lie_as_they_did_and_far_from_each_other() -> None:
    wide = torch.arange(60.0).view(3, 20)
    rows, alike = wide[1:, 2:9], wide[:2]
    few, nothing = torch.tensor([True, False]), torch.zeros(0, 4, dtype=torch.int64)
    tensors = [rows, few, alike, nothing]
    memory = Memory.of(tensors)
    there = memory.on(memory.bytes)
    for tensor in tensors:
        got = there[id(tensor)]
        assert torch.equal(got, tensor)
        assert (got.dtype, got.stride()) == (tensor.dtype, tensor.stride())
        ahead = (got.storage_offset() - tensor.storage_offset()) * tensor.itemsize
        assert ahead % ALIGNMENT == 0
    assert there[id(rows)].untyped_storage().data_ptr() != wide.untyped_storage().data_ptr()
    assert len(memory.bytes) == 2 * ALIGNMENT
    assert {*memory.bytes[240:512].tolist(), *memory.bytes[514:].tolist()} == {BETWEEN}


class Writes(ReferenceSampler):
    """Spoils one of its inputs when it is done."""

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        output = super().verify(batch, params, policy, **memory)
        batch.positions.add_(1)
        return output


def test_what_a_backend_writes_to_its_inputs_is_seen() -> None:
    case = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 1))
    found = compare_case(case, (OnDevice(Writes(), CPU),), CPU)
    assert "input positions" in {difference.decision for _, difference in found.compared.failures}


@pytest.mark.gpu
def test_a_device_is_given_and_gives_back() -> None:
    params = SamplingTensors.stack([SamplingParams(seed=seed) for seed in range(3)])
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    batch = VerifyBatch.dense(
        target_logits=logits.view(3, 2, 40),
        draft_token_ids=torch.zeros(3, 1, dtype=torch.int64),
        positions=torch.arange(3),
    )
    expected = REFERENCE.verify(batch, params, Strict())
    got = OnDevice(REFERENCE, torch.device("cuda")).verify(batch, params, Strict())
    assert got.token_ids.device == CPU
    assert torch.equal(got.token_ids, expected.token_ids)
