"""What a call does to its inputs is seen, whatever it is."""

from collections.abc import Callable

import pytest
import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.conformance.untouched import Snapshot


@frozen(eq=False)
class Inputs:
    flag: Tensor
    rows: Tensor


def inputs() -> Inputs:
    wide = torch.full((3, 6), torch.nan)
    return Inputs(torch.tensor([True]), wide[:, :4])


def test_nothing_is_nothing_and_nan_is_itself() -> None:
    assert [*Snapshot.of().differences()] == []
    assert [*Snapshot.of(inputs()).differences()] == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda some: some.flag.logical_not_(), "flag"),
        (lambda some: some.flag.untyped_storage().resize_(0), "flag"),
        (lambda some: some.flag.resize_(9).fill_(True), "flag"),
        (lambda some: some.rows.as_strided((1,), (1,), 5).zero_(), "rows"),
    ],
    ids=["written", "emptied", "made larger", "written between rows"],
)
def test_a_changed_input_is_named(change: Callable[[Inputs], object], name: str) -> None:
    some = inputs()
    snapshot = Snapshot.of(some)
    change(some)
    (difference,) = snapshot.differences()
    assert (difference.decision, difference.excused) == (f"input {name}", False)
