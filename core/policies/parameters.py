"""How a policy declares a parameter: once, with its range, which checks, files and tests read."""

import math
from typing import Any

from attrs import Attribute, field

from ..checks import check_integer, check_number


def number(default: float, low: float, high: float) -> Any:
    """A field for a number in [low, high]; its metadata say "low" and "high"."""

    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        check_number(attribute.name, value, low, high)

    return field(default=default, validator=check, metadata={"low": low, "high": high})


def integer(default: int, low: int) -> Any:
    """A field for an integer of at least `low`."""

    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        check_integer(attribute.name, value, low)

    return field(default=default, validator=check, metadata={"low": low, "high": math.inf})
