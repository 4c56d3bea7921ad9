"""Values as text and tensors, because an operator takes nothing else; and back.

The values may be attrs classes, tuples, numbers, strings, None and tensors.
"""

from importlib import import_module
from typing import Any

import attrs
from torch import Tensor

from ...core.errors import InvalidInputError


def describe(value: object, tensors: list[Tensor]) -> Any:
    """What JSON can hold of a value; its tensors are appended to the list.

    Raises:
        InvalidInputError: something is neither.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, tuple):
        return [describe(part, tensors) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = type(value)
    if not attrs.has(kind):
        raise InvalidInputError(f"operators: expected an attrs class or a number, got {value!r}")
    fields = {
        attribute.name: describe(getattr(value, attribute.name), tensors)
        for attribute in attrs.fields(kind)
    }
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}


def rebuild(description: Any, tensors: list[Tensor]) -> Any:
    """The value that `describe` was given."""
    if isinstance(description, list):
        return tuple(rebuild(part, tensors) for part in description)
    if not isinstance(description, dict):
        return description
    if "tensor" in description:
        return tensors[description["tensor"]]
    module, _, name = description["class"].partition(":")
    fields = {key: rebuild(part, tensors) for key, part in description["fields"].items()}
    return getattr(import_module(module), name)(**fields)
