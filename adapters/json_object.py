"""JSON files of a checkpoint directory, read field by field.

Every error names the file, the field, what was expected and what it holds. A field without a
default must be present, and of its type.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ..core.checks import check_integer, check_number
from ..core.errors import AcceptorError, CheckpointError, InvalidInputError
from .error_text import one_line, read_bounded, unfit

_FLOAT32 = torch.finfo(torch.float32)


@frozen
class JsonObject:
    """A JSON object and its place in a file.

    Attributes:
        source: the file and the path of fields inside it, for errors.
        values: field name -> value; null counts as absent.

    Every method raises `CheckpointError` if a value is absent without a default, or unfit.
    """

    source: str
    values: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def value(self, name: str, default: Any = None) -> Any:
        """The value unchanged, or the default if it is absent or null."""
        value = self.values.get(name)
        return default if value is None else value

    def integer(
        self, name: str, low: int, high: int = 2**31 - 1, default: int | None = None
    ) -> int:
        """An integer in [low, high]."""
        value: int = self.value(name, default)
        self._check(check_integer, name, value, low, high)
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """A number above 0 that float32 can hold, since tensors will hold it."""
        value = self.value(name, default)
        self._check(check_number, name, value, _FLOAT32.tiny, _FLOAT32.max)
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string that UTF-8 can encode."""
        value = self.value(name, default)
        if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self.error(name, "a string", value)
        return value

    def section(self, name: str) -> "JsonObject":
        """An object inside this one; empty if absent."""
        values = self.value(name, {})
        if not isinstance(values, dict):
            raise self.error(name, "an object", values)
        return JsonObject(f"{self.source}: {name}", values)

    def error(self, name: str, expected: str, got: object) -> AcceptorError:
        """An error that says what the field should be."""
        text = "nothing" if got is None else json.dumps(got)
        return unfit(f"{self.source}: {name}", expected, text)

    def _check(self, check: Callable[..., None], name: str, value: object, *bounds: float) -> None:
        try:
            check(name, value, *bounds)
        except InvalidInputError as error:
            raise CheckpointError(f"{self.source}: {one_line(error)}") from None


def read_json(path: Path) -> JsonObject:
    """The object that a JSON file holds."""
    try:
        values = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise unfit(path, "JSON", error) from None
    if not isinstance(values, dict):
        raise unfit(path, "an object", type(values).__name__)
    return JsonObject(str(path), values)


def read_text(path: Path) -> str:
    """The text of a small file."""
    try:
        if not path.is_file():
            raise unfit(path, "a file", "none")
        return read_bounded(path)
    except (OSError, ValueError) as error:
        raise unfit(path, "UTF-8 text", error) from None
