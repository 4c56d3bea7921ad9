"""Tensors that go to another device together arrive as they were."""

from collections.abc import Sequence

import pytest
import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.conformance import moved as module
from acceptor.backends.conformance.moved import moved, on_host, stacked
from acceptor.core import SamplingParams

META = torch.device("meta")


@frozen(eq=False)
class Inner:
    few: Tensor
    none: None = None


@frozen(eq=False)
class Outer:
    name: str
    inner: Inner
    rows: Tensor


def value() -> Outer:
    flags = torch.tensor([True, False, True])
    return Outer("a", Inner(flags), torch.arange(12.0).bfloat16().view(3, 4)[:, 1:3])


def test_what_is_there_already_is_not_copied() -> None:
    some = value()
    assert on_host(some) is some


def test_everything_else_stays_and_tensors_go() -> None:
    some = value()
    got, number = moved((some, 3), META)
    assert (got.name, got.inner.none, number) == ("a", None, 3)
    for new, old in ((got.rows, some.rows), (got.inner.few, some.inner.few)):
        assert (new.device, new.shape, new.dtype) == (META, old.shape, old.dtype)


def test_values_survive_in_memory_of_their_own() -> None:
    tensors = [
        torch.tensor([True, False]),
        torch.arange(6, dtype=torch.int64).view(2, 3),
        torch.zeros(0, 5),
        torch.tensor(7, dtype=torch.int32),
        torch.arange(4.0).bfloat16().expand(3, 4),
        torch.arange(8)[::2],
        torch.arange(12, dtype=torch.int32).view(4, 3)[:, 1],
        torch.tensor([torch.nan, -torch.inf]),
    ]
    copies = module._copies(tensors, torch.device("cpu"))
    for new, old in zip(copies, tensors, strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=0, equal_nan=True)
    addresses = {copy.untyped_storage().data_ptr() for copy in copies if copy.numel()}
    assert len(addresses) == len(tensors) - 1


def test_a_device_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(tensors: Sequence[Tensor], _: torch.device) -> Sequence[Tensor]:
        asked.append(len(tensors))
        return tensors

    monkeypatch.setattr(module, "_copies", note)
    stacked([SamplingParams(seed=1, logit_bias={1: 2.0}, presence_penalty=1.0)], META)
    assert len(asked) == 1
    assert asked[0] > 10
