"""Tensors that no kernel can reach are refused by name, and integers that lie apart are copied."""

from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.core import InvalidInputError, SampleBatch, Strict, UnavailableError, VerifyBatch
from kit.batches import dense, stacked

pytest.importorskip("triton")

from acceptor.backends import triton_backend
from acceptor.backends.triton_backend import device, launch
from acceptor.backends.triton_backend.side_by_side import side_by_side


def test_memory_of_the_host_is_refused() -> None:
    sampler = triton_backend.TritonSampler()
    params, batch = stacked(1), dense(torch.zeros(1, 2, 5))
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
    class Kernel:
        def __init__(self, said: str) -> None:
            self.said = said

        def __getitem__(self, _: object) -> object:
            def run() -> None:
                raise RuntimeError(self.said)

            return run

    too_old = "Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain"
    with pytest.raises(UnavailableError, match=r"^backend triton: expected a driver .*toolchain$"):
        launch.start(Kernel(too_old), (1,))
    for said in ("Triton Error [CUDA]: out of memory", "something else"):
        with pytest.raises(RuntimeError, match=r"out of memory|something else"):
            launch.start(Kernel(said), (1,))


BATCH = VerifyBatch(
    target_logits=torch.zeros(6, 4),
    cu_num_logits=torch.tensor([0, 3, 6]),
    draft_token_ids=torch.tensor([[1, 2], [3, 0]]),
    positions=torch.tensor([5, 7]),
    slot_ids=torch.tensor([1, 0]),
)


def apart(integers: torch.Tensor) -> torch.Tensor:
    return torch.stack((integers, integers + 1), -1)[..., 0]


def test_what_lies_side_by_side_is_the_same_object() -> None:
    assert side_by_side(BATCH) is BATCH
    behind_others = evolve(BATCH, draft_token_ids=torch.zeros(2, 3, dtype=torch.int64)[:, 1:])
    assert side_by_side(behind_others) is behind_others
    sample = SampleBatch(logits=torch.zeros(2, 4), positions=BATCH.positions)
    assert side_by_side(sample) is sample


@pytest.mark.parametrize("name", ["cu_num_logits", "draft_token_ids", "positions", "slot_ids"])
def test_what_does_not_is_copied_each_time(name: str) -> None:
    integers = apart(getattr(BATCH, name))
    changed: dict[str, Any] = {name: integers}
    batch = evolve(BATCH, **changed)
    for _ in range(2):
        copied = getattr(side_by_side(batch), name)
        assert copied.is_contiguous()
        assert torch.equal(copied, integers)
        integers += 1


def test_positions_of_a_draw_are_copied_too() -> None:
    batch = SampleBatch(logits=torch.zeros(2, 4), positions=apart(BATCH.positions))
    assert side_by_side(batch).positions.tolist() == [5, 7]
    assert side_by_side(batch).positions.is_contiguous()
