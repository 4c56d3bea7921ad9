"""Tracks which requests have a slot and which wait.

Slots hold all memory of requests: they are allocated once, given to the request that has waited
longest, and taken back when it ends.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from attrs import define, field, frozen

from ...core.policies.parameters import derived, integer
from ..request_state import RequestState

MAX_SLOTS = 2**16
"""Far beyond what a step can hold: a typing error must not fill the memory."""


@frozen(kw_only=True)
class Limits:
    """The limits of memory, and of prompts between two decode steps.

    Attributes:
        num_slots: how many requests run at once; others wait.
        max_len: how many tokens a request may have, prompt and output together; None for the
            target's context.
        prefill_tokens: prompt tokens that are entered between two decode steps, rounded up to a
            request's chunk; running requests wait that long for their next token.

    Raises:
        InvalidInputError: a number is out of its range.
    """

    num_slots: int = integer(16, 1, MAX_SLOTS)
    max_len: int | None = integer(None, 1)
    prefill_tokens: int = integer(2048, 1)


@define(eq=False)
class Schedule:
    """Requests from their arrival to their end.

    Attributes:
        states: all requests that have not ended, by id.
    """

    num_slots: int
    states: dict[int, RequestState] = field(factory=dict)
    _waiting: deque[RequestState] = field(factory=deque)
    _free: list[int] = derived(lambda self: list(range(self.num_slots)))

    def add(self, state: RequestState) -> None:
        """Queue a request behind all others."""
        self.states[state.index] = state
        self._waiting.append(state)

    def admit(self) -> Iterable[RequestState]:
        """Give free slots to those that have waited longest; yields those that got one."""
        while self._waiting and self._free:
            state = self._waiting.popleft()
            # A cancelled request has left the states, but not the queue.
            if state.index in self.states:
                state.slot_id = heappop(self._free)
                yield state

    def remove(self, state: RequestState) -> None:
        """Forget a request that has ended, and free its slot."""
        del self.states[state.index]
        if state.slot_id >= 0:
            heappush(self._free, state.slot_id)

    def admitted(self) -> list[RequestState]:
        """The requests that have a slot, in the order of their arrival."""
        return [state for state in self.states.values() if state.slot_id >= 0]
