"""Which requests have a slot and which wait.

Slots are all the memory there is: allocated once, given to the request that has waited longest,
taken back when it ends.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from attrs import define, field, frozen

from ...core.checks import check_integer
from .entry import Entry


@frozen(kw_only=True)
class Limits:
    """How much memory requests may take, and how much of a step prompts may take.

    Attributes:
        num_slots: how many requests run at once; more wait.
        max_len: how many tokens one of them may have, prompt and output together; None for the
            target's context.
        prefill_tokens: prompt tokens that go through the models between two decode steps, rounded
            up to a request's chunk; running requests wait that long for their next token.

    Raises:
        InvalidInputError: a number is below 1.
    """

    num_slots: int = 16
    max_len: int | None = None
    prefill_tokens: int = 2048

    def __attrs_post_init__(self) -> None:
        check_integer("num_slots", self.num_slots, 1)
        if self.max_len is not None:
            check_integer("max_len", self.max_len, 1)
        check_integer("prefill_tokens", self.prefill_tokens, 1)


@define(eq=False)
class Schedule:
    """Entries from their arrival to their end.

    Attributes:
        num_slots: how many may run.
        entries: all that have not ended, by their id.
    """

    num_slots: int
    entries: dict[int, Entry] = field(factory=dict)
    _waiting: deque[Entry] = field(factory=deque)
    _free: list[int] = field(init=False)

    @_free.default
    def _make_free(self) -> list[int]:
        return list(range(self.num_slots))

    def add(self, entry: Entry) -> None:
        """Queue it behind all others."""
        self.entries[entry.arrival.request_id] = entry
        self._waiting.append(entry)

    def admit(self) -> Iterable[Entry]:
        """Give free slots to those that have waited longest; yields those that got one."""
        while self._waiting and self._free:
            entry = self._waiting.popleft()
            # A cancelled request has left the entries, but not the queue.
            if entry.arrival.request_id in self.entries:
                entry.state.slot_id = heappop(self._free)
                yield entry

    def remove(self, entry: Entry) -> None:
        """Forget a request that has ended, and free its slot."""
        del self.entries[entry.arrival.request_id]
        if entry.state.slot_id >= 0:
            heappush(self._free, entry.state.slot_id)

    def admitted(self) -> list[Entry]:
        """Those that have a slot, in the order of their arrival."""
        return [entry for entry in self.entries.values() if entry.state.slot_id >= 0]
