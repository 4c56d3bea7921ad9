"""Values whose tensors go to another device together: one copy, for which the device waits once.

Processes that share a GPU take turns, and whoever waits for it loses its turn. This module refuses
to change values, and to share memory between the tensors that it makes.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import attrs
import torch
from torch import Tensor

from ...core.sampling_params import SamplingParams
from ...core.sampling_tensors import SamplingTensors

Value = TypeVar("Value")


def on_host(value: Value) -> Value:
    """An attrs value, or a tuple of them, with all its tensors on the host."""
    return moved(value, torch.device("cpu"))


def stacked(wishes: Sequence[SamplingParams], device: torch.device) -> SamplingTensors:
    """`SamplingTensors.stack` on a device."""
    return moved(SamplingTensors.stack(wishes), device)


def moved(value: Value, device: torch.device) -> Value:
    """An attrs value, or a tuple of them, with all its tensors on a device."""
    tensors = [tensor for tensor in tensors_of(value) if tensor.device.type != device.type]
    there = {id(old): new for old, new in zip(tensors, _copies(tensors, device), strict=True)}
    return cast("Value", replaced(value, there)) if there else value


def _copies(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    if not tensors:
        return []
    parts = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    pieces = torch.cat(parts).to(device).split([len(part) for part in parts])
    # A clone lies where any dtype may begin.
    return [
        piece.clone().view(tensor.dtype).view(tensor.shape)
        for piece, tensor in zip(pieces, tensors, strict=True)
    ]


def tensors_of(value: object) -> list[Tensor]:
    """All tensors of an attrs value, or of a tuple of them, however deep they lie."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in _parts(value).values() for tensor in tensors_of(part)]


def replaced(value: Any, there: dict[int, Tensor]) -> Any:
    """The value with other tensors in the place of those whose ids are named."""
    if isinstance(value, Tensor):
        return there.get(id(value), value)
    parts = {name: replaced(part, there) for name, part in _parts(value).items()}
    if isinstance(value, tuple):
        return (*parts.values(),)
    return attrs.evolve(value, **parts) if parts else value


def _parts(value: object) -> dict[str, object]:
    if isinstance(value, tuple):
        return {str(place): part for place, part in enumerate(value)}
    if not attrs.has(type(value)):
        return {}
    names = (field.name for field in attrs.fields(cast("Any", type(value))))
    return {name: getattr(value, name) for name in names}
