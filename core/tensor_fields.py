"""The tensors that an attrs value holds, in values of its own too."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
from torch import Tensor


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """An attrs value, or a tuple of them, with other tensors in the place of all it holds."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return (*(mapped(part, change) for part in value),)
    if not attrs.has(type(value)):
        return value
    parts = attrs.asdict(value, recurse=False)
    return attrs.evolve(value, **{name: mapped(part, change) for name, part in parts.items()})


def named_tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors of a value by their paths there, such as "logprobs.top"."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for part in value:
            yield from named_tensors(part, name)
    elif attrs.has(type(value)):
        for attribute, part in attrs.asdict(value, recurse=False).items():
            yield from named_tensors(part, f"{name}.{attribute}".lstrip("."))
