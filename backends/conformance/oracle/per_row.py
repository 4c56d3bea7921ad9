"""Values that are computed for a row when they are first asked for, and never twice."""

from collections.abc import Callable
from typing import Generic, TypeVar

from attrs import define, field

Value = TypeVar("Value")


@define
class PerRow(Generic[Value]):
    """A list without a length whose entries come into being when looked at."""

    compute: Callable[[int], Value]
    _known: dict[int, Value] = field(factory=dict)

    def __getitem__(self, row: int) -> Value:
        """The value of a row."""
        if row not in self._known:
            self._known[row] = self.compute(row)
        return self._known[row]
