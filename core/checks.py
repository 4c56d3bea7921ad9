"""Checks of values, shapes, dtypes and devices. None reads a tensor's values."""

import math
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidInputError, UnavailableError

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64)
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
_INTEGER = int | torch.SymInt
"""Sizes are symbols while `torch.compile` traces."""


def plain_number(value: Any) -> Any:
    """Turn any library's integer or real number into Python's; return other values unchanged."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def check_number(
    name: str, value: object, low: float, high: float = math.inf, *, open_below: bool = False
) -> None:
    """Raise `InvalidInputError` unless value is a finite number in [low, high], or (low, high]."""
    inside = (
        isinstance(value, _INTEGER | float)
        and not isinstance(value, bool)
        and low <= value <= high
        and not (open_below and value == low)
    )
    # Not math.isfinite, which refuses integers beyond the largest double.
    if not inside or value in (-math.inf, math.inf):
        interval = f"{'(' if open_below or low == -math.inf else '['}{low}, {high}"
        interval += ")" if high == math.inf else "]"
        raise InvalidInputError(f"{name}: expected a number in {interval}, got {value!r}")


def check_integer(name: str, value: object, low: int, high: float = math.inf) -> None:
    """Raise `InvalidInputError` unless value is an int in [low, high]."""
    # Runs for a few sizes in every step, and nearly all fit.
    if type(value) is int and low <= value <= high:
        return
    if not isinstance(value, _INTEGER) or isinstance(value, bool):
        raise InvalidInputError(f"{name}: expected an integer, got {value!r}")
    check_number(name, value, low, high)


def check_integers(name: str, values: Collection[object], low: int, high: float = math.inf) -> None:
    """`check_integer` for many values, such as all tokens of a prompt: tells of the first wrong."""
    # Asking an abstract class takes several times as long.
    if not isinstance(values, list | tuple):
        check_kind(name, values, Collection)
    for value in values:
        # The fast path: nearly all values fit.
        if type(value) is not int or not low <= value <= high:
            check_integer(name, plain_number(value), low, high)


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Raise `InvalidInputError` unless value is one of these names."""
    names = tuple(known)
    if value not in names:
        raise InvalidInputError(f"{name}: expected one of {', '.join(names)}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise `InvalidInputError` unless value is True or False."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name}: expected true or false, got {value!r}")


def check_filled(name: str, value: object) -> None:
    """Raise `InvalidInputError` for an empty string."""
    if value == "":
        raise InvalidInputError(f"{name}: expected a string with content, got ''")


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise `InvalidInputError` unless value is an instance of this class."""
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name}: expected {kind.__name__}, got {type(value).__name__}")


def check_device(
    value: torch.device | str, name: str = "device", *, any_type: bool = False
) -> torch.device:
    """The CPU or CUDA device of this name, or with `any_type` any device that PyTorch knows.

    Raises:
        InvalidInputError: it is no such device.
        UnavailableError: there is no such CUDA device.
    """
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidInputError(f"{name}: expected cpu or cuda, got {value!r}") from None
    if not any_type and device.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"{name}: expected cpu or cuda, got {device}")
    if device.type == "cpu":
        # There is only one CPU, whatever index the name has.
        return torch.device("cpu")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    # Torch wraps a large index around to a negative one.
    if not 0 <= (device.index or 0) < count:
        known = f"one of {count} CUDA devices" if count else "cpu, as PyTorch finds no CUDA device"
        raise UnavailableError(f"{name}: expected {known}, got {device}")
    return device


def check_tensor(
    name: str,
    tensor: object,
    shape: Sequence[int | None],
    dtypes: Sequence[torch.dtype],
    device: torch.device | None = None,
) -> None:
    """Raise `InvalidInputError` unless the tensor has this shape (None: any), dtype and device."""
    if not isinstance(tensor, Tensor):
        raise InvalidInputError(f"{name}: expected a tensor, got {type(tensor).__name__}")
    # Runs for a dozen tensors in every step, and most shapes are equal.
    got = tensor.shape
    if got != shape and not _fits(got, shape):
        want_text = ", ".join("any" if want is None else str(want) for want in shape)
        raise InvalidInputError(f"{name}: expected shape [{want_text}], got {list(got)}")
    if tensor.dtype not in dtypes:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise InvalidInputError(f"{name}: expected dtype {names}, got {tensor.dtype}")
    if device is not None and tensor.device != device:
        raise InvalidInputError(f"{name}: expected device {device}, got {tensor.device}")


def check_contiguous(name: str, tensor: Tensor) -> None:
    """Raise `InvalidInputError` unless the tensor is contiguous."""
    if not tensor.is_contiguous():
        raise InvalidInputError(
            f"{name}: expected a contiguous tensor, got strides {list(tensor.stride())}"
        )


def _fits(got: Sequence[int], shape: Sequence[int | None]) -> bool:
    # Most of the others are any, and then no loop runs.
    if shape.count(None) == len(got) == len(shape):
        return True
    return len(got) == len(shape) and all(
        want in (None, size) for want, size in zip(shape, got, strict=True)
    )
