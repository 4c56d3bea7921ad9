"""How a class declares a parameter: once, with its range, which checks, files and tests read."""

import math
from typing import Any

from attrs import Attribute, field

from ..checks import check_choice, check_integer, check_number


def number(default: Any, low: float, high: float = math.inf, *, open_below: bool = False) -> Any:
    """A field for a number in [low, high]; its metadata say "low" and "high".

    Here and below None fits, too, where it is the default.
    """

    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if value is not None or default is not None:
            check_number(attribute.name, value, low, high, open_below=open_below)

    return field(default=default, validator=check, metadata={"low": low, "high": high})


def integer(default: Any, low: int, high: float = math.inf) -> Any:
    """A field for an integer in [low, high]."""

    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if value is not None or default is not None:
            check_integer(attribute.name, value, low, high)

    return field(default=default, validator=check, metadata={"low": low, "high": high})


def choice(default: str | None, known: tuple[str, ...]) -> Any:
    """A field for one of several names."""

    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if value is not None or default is not None:
            check_choice(attribute.name, value, known)

    return field(default=default, validator=check)
