"""Sampling parameters at fixed addresses, for graphs that read them again and again.

What is not in a tensor chose the kernels, so it is part of a graph's kind.
"""

from collections.abc import Hashable
from typing import Any

from attrs import evolve, fields, has
from torch import Tensor


def kind_of(params: Any) -> Hashable:
    """What must be equal for one graph to serve both: shapes, and all that is on the host."""
    if isinstance(params, Tensor):
        return params.shape, params.dtype
    if has(type(params)):
        return tuple(kind_of(getattr(params, field.name)) for field in fields(type(params)))
    host_value: Hashable = params
    return host_value


def fixed_copy(params: Any) -> Any:
    """The same in tensors of its own."""
    if isinstance(params, Tensor):
        return params.clone()
    if not has(type(params)):
        return params
    copies = {field.name: fixed_copy(getattr(params, field.name)) for field in fields(type(params))}
    return evolve(params, **copies)


def copy_params(to: Any, params: Any) -> None:
    """Write parameters of the same kind over others; does not wait for the device."""
    if isinstance(params, Tensor):
        to.copy_(params, non_blocking=True)
    elif has(type(params)):
        for field in fields(type(params)):
            copy_params(getattr(to, field.name), getattr(params, field.name))
