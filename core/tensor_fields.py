"""Walks the fields of attrs values, nested ones too; used for their tensors above all."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from torch import Tensor


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """An attrs value, or a tuple of them, with `change` applied to every tensor."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return (*(mapped(part, change) for part in value),)
    if not attrs.has(type(value)):
        return value
    parts = attrs.asdict(value, recurse=False)
    return attrs.evolve(value, **{name: mapped(part, change) for name, part in parts.items()})


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of nested attrs values and containers, with its path of attributes."""
    if attrs.has(type(value)):
        for attribute, part in attrs.asdict(value, recurse=False).items():
            yield from leaves(part, f"{name}.{attribute}".lstrip("."))
    elif isinstance(value, tuple | list | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(part, name)
    else:
        yield name, value


def named_tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a value with its path, such as "logprobs.top"."""
    return ((name, leaf) for name, leaf in leaves(value) if isinstance(leaf, Tensor))
