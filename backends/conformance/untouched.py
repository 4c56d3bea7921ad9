"""Whether a call left its inputs as they were, gaps between rows included.

It refuses to compare values: NaN is compared by its bits.
"""

from collections.abc import Iterator
from typing import cast

import attrs
import torch
from attrs import frozen
from torch import Tensor

from .findings import Difference


@frozen(eq=False)
class Snapshot:
    """The bytes of all tensors of some values, at one time."""

    before: tuple[tuple[str, Tensor, Tensor], ...]

    @classmethod
    def of(cls, *values: object) -> "Snapshot":
        """Of attrs values, however deep their tensors lie."""
        tensors = [named for value in values for named in _tensors("", value)]
        return cls(tuple((name, tensor, _bytes(tensor).clone()) for name, tensor in tensors))

    def differences(self) -> Iterator[Difference]:
        """One for each tensor that was written to."""
        changed = [_differ(_bytes(tensor), before) for _, tensor, before in self.before]
        # One answer for all of them: whoever waits for a device waits once.
        told = torch.stack(changed).tolist() if changed else []
        for (name, _, _), is_changed in zip(self.before, told, strict=True):
            if is_changed:
                yield Difference(-1, -1, f"input {name}", "untouched", "modified", float("inf"))


def _differ(now: Tensor, before: Tensor) -> Tensor:
    if now.shape != before.shape:
        return torch.ones((), dtype=torch.bool, device=now.device)
    return (now != before).any()


def _tensors(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif attrs.has(type(value)):
        for attribute in attrs.fields(type(cast("attrs.AttrsInstance", value))):
            inner = f"{name}.{attribute.name}" if name else attribute.name
            yield from _tensors(inner, getattr(value, attribute.name))


def _bytes(tensor: Tensor) -> Tensor:
    everything = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return everything.set_(tensor.untyped_storage())
