"""The one argument of every kernel, packed field by field as cuda/params.cuh declares it."""

import re
import struct
from collections.abc import Mapping
from typing import Any

from .compiler import sources

MAX_RATES = 127

_FIELD = re.compile(r"^ +(?:const )?(\w+)\*? (\w+);", re.MULTILINE)
_PARTS = {
    "Integers": ("", "_stride", "_wide"),
    "Recipe": ("_temperature", "_min_p", "_top_k", "_top_p"),
}
"""The words of fields that are structs themselves."""


def _fields() -> tuple[str, ...]:
    _, _, declared = sources()["params.cuh"].partition("struct Params {")
    kinds = [field.groups() for field in _FIELD.finditer(declared)]
    return tuple(
        name + part for kind, name in kinds if kind != "double" for part in _PARTS.get(kind, ("",))
    )


FIELDS = _fields()
"""The 64-bit fields before the policy's numbers."""

PLACES = {name: place for place, name in enumerate(FIELDS)}
_LAYOUT = struct.Struct(f"={len(FIELDS)}q2d{MAX_RATES}d")
SIZE = _LAYOUT.size


def pack(fields: Mapping[str, Any]) -> bytearray:
    """Pack the struct; fields not named are 0, which is null for a pointer.

    Args:
        fields: integers and addresses by name, and a policy's epsilon, delta and rates.
    """
    rates = fields.get("rates", ())
    numbers = fields.get("epsilon", 0.0), fields.get("delta", 0.0)
    padded = [*numbers, *rates[:MAX_RATES], *[0.0] * (MAX_RATES - len(rates))]
    return bytearray(_LAYOUT.pack(*[fields.get(name, 0) for name in FIELDS], *padded))
