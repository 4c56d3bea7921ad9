"""Integers that lie apart are laid side by side for the Triton backend, in every call anew."""

from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.core import SampleBatch, VerifyBatch

pytest.importorskip("triton")

from acceptor.backends.triton_backend.side_by_side import side_by_side

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
