"""Declares a class's parameter once, with its range; checks, config files and tests read it here.

None is allowed where it is the default. Other libraries' numbers become Python's.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from attrs import Attribute, Factory, field

from ..checks import (
    check_choice,
    check_filled,
    check_flag,
    check_integer,
    check_number,
    plain_number,
)


def number(default: Any, low: float, high: float = math.inf, *, open_below: bool = False) -> Any:
    """A field for a number in [low, high]; its metadata say "low" and "high"."""
    return _parameter(default, check_number, low=low, high=high, open_below=open_below)


def integer(default: Any, low: int, high: float = math.inf) -> Any:
    """A field for an integer in [low, high]."""
    return _parameter(default, check_integer, low=low, high=high)


def choice(default: str | None, known: Iterable[str]) -> Any:
    """A field for one of several names."""
    return _parameter(default, check_choice, known=known)


def flag(default: bool) -> Any:
    """A field for True or False."""
    return _parameter(default, check_flag)


def filled(default: str | None) -> Any:
    """A field for a string that is not empty."""
    return _parameter(default, check_filled)


def derived(ask: Callable[[Any], Any]) -> Any:
    """A field that is never set: it follows from the value's other fields."""
    return field(default=Factory(ask, takes_self=True), init=False)


def _parameter(default: Any, check: Callable[..., None], **limits: Any) -> Any:
    def validate(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if value is not None or default is not None:
            check(attribute.name, value, **limits)

    return field(default=default, converter=plain_number, validator=validate, metadata=limits)
