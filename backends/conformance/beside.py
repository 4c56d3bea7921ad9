"""What a second backend gave on the very batches that the first one had; refuses to compare."""

from collections.abc import Mapping
from typing import Any

from attrs import asdict, evolve, field, frozen

from .tally import Tally


@frozen
class Beside:
    """A second backend's outcome.

    Attributes:
        backend: its name.
        tally: the counts of its own comparison with the oracle.
        between: where the two differ from each other; excused is what the oracle says of both.
    """

    backend: str
    tally: Tally = field(factory=Tally)
    between: Tally = field(factory=Tally)

    @property
    def is_conformant(self) -> bool:
        """It conforms, and nothing between the two is unexplained.

        How rare near-ties must be is asked of each backend, and not of the two together.
        """
        return (
            self.tally.is_conformant and not self.between.failures and self.between.num_batches > 0
        )

    def including(self, tally: Tally, between: Tally) -> "Beside":
        """More batches."""
        return evolve(self, tally=self.tally + tally, between=self.between + between)

    def to_values(self) -> dict[str, Any]:
        """What `from_values` reads."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any] | None) -> "Beside | None":
        """Of a record; None where there was no second backend."""
        if values is None:
            return None
        tallies = (Tally.from_values(values[name]) for name in ("tally", "between"))
        return cls(values["backend"], *tallies)
