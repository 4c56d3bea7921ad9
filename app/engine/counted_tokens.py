"""What penalties count of the requests in slots; the memory is taken when the first one asks."""

from collections.abc import Iterable

import torch
from attrs import define, field

from ...core import TokenCounts
from ..request_state import RequestState


@define(eq=False)
class CountedTokens:
    """Token counts of every slot, and of the one that padding uses."""

    num_slots: int
    vocab_size: int
    device: torch.device
    _counts: TokenCounts | None = field(default=None, init=False)

    @property
    def counts(self) -> TokenCounts:
        """The counts; may find no memory for them at first."""
        if self._counts is None:
            self._counts = TokenCounts.empty(self.num_slots + 1, self.vocab_size, self.device)
        return self._counts

    def start(self, state: RequestState) -> None:
        """Count a request's prompt, if it has penalties."""
        if state.request.params.has_penalties:
            self.counts.start(state.slot_id, state.request.prompt_token_ids)

    def recount(self, states: Iterable[RequestState]) -> None:
        """Count all tokens anew: a step that is lost may have counted what it emitted."""
        for state in states:
            if state.request.params.has_penalties:
                self.start(state)
                emitted = state.token_ids[len(state.request.prompt_token_ids) :]
                slot_ids = torch.tensor([state.slot_id], device=self.device)
                self.counts.add(slot_ids, torch.tensor([emitted], device=self.device).long())
