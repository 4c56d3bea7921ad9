"""Which chunks a campaign has: the same ones always, whichever of them end first.

It refuses to look at a clock.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import count, islice

from attrs import define, field, frozen

from acceptor.backends.conformance import Tally
from kit.equivalence.forms import Form

TURN = 1_000
"""Numbers of chunks that each turn of all forms has to itself."""


@frozen
class Chunk:
    """Some batches of a form; the number is their seed."""

    form: Form
    size: int
    number: int

    def at(self, turn: int) -> "Chunk":
        """The form's chunk in another turn, this one being of the first."""
        return Chunk(self.form, self.size, self.number + turn * TURN)


@define
class Plan:
    """Turns of all forms in order, until the chunks have enough batches.

    Nothing but what the chunks themselves gave decides: a chunk counts for its size until it has
    ended, and then for what it compared. So what is due only ever gets longer, and in the end it is
    the shortest row of chunks that compared enough.

    Attributes:
        first_turn: a chunk of every form, in the order in which to begin.
        num_batches: how many are enough; more, where something else compared less than it should.
        compared: batches of each chunk that ended, by its number.
        given: numbers of those that were handed out.
    """

    first_turn: Sequence[Chunk]
    num_batches: int
    compared: dict[int, int] = field(factory=dict)
    given: set[int] = field(factory=set)

    def ready(self, most: int) -> list[Chunk]:
        """The first ones that are due and were not handed out yet."""
        chosen = [*islice(filter(self._may_begin, self._due()), max(most, 0))]
        self.given.update(chunk.number for chunk in chosen)
        return chosen

    def resume(self, numbers: Collection[int], num_compared: int) -> None:
        """An earlier run had these chunks, and compared so many of their batches."""
        sizes = {chunk.number: chunk.size for chunk in self.first_turn}
        self.given.update(numbers)
        self.compared.update({number: sizes[number % TURN] for number in numbers})
        self.num_batches += sum(self.compared.values()) - num_compared

    def note(self, chunk: Chunk, found: Tally) -> None:
        """A chunk has ended."""
        self.compared[chunk.number] = found.num_batches

    def _due(self) -> Iterator[Chunk]:
        yield from self.first_turn
        missing = self.num_batches - sum(self._worth(chunk) for chunk in self.first_turn)
        for turn in count(1):
            going_on = [chunk for chunk in self.first_turn if self._worth(chunk)]
            for chunk in (first.at(turn) for first in going_on):
                if missing <= 0:
                    return
                yield chunk
                missing -= self._worth(chunk)
            if not going_on:
                return

    def _worth(self, chunk: Chunk) -> int:
        return self.compared.get(chunk.number, chunk.size)

    def _may_begin(self, chunk: Chunk) -> bool:
        # Whether a backend refuses a form is known when the form's first chunk has ended.
        is_known = chunk.number < TURN or chunk.number % TURN in self.compared
        return is_known and chunk.number not in self.given
