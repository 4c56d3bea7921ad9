"""Where draft tokens come from: the port, and a drafter that drafts nothing.

Every drafter addresses its memory by slot and position, so rejecting a draft is no operation. This
module refuses to verify.
"""

import sys
from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from attrs import field, frozen
from torch import Tensor

from ..core.batch import PADDING_TOKEN_ID
from ..core.output import Status
from .frontier import Frontier


@frozen(eq=False)
class Draft:
    """What was drafted in one step.

    Attributes:
        token_ids: [num_reqs, num_tokens] int64; -1 ends a draft early.
        status: [num_reqs, num_tokens] int32, bits of `Status`: why there is no token.
        logits: [num_slots, at least num_tokens, vocab_size], what each token was drawn from; None
            when the policy does not ask or drafts have no probabilities.
    """

    token_ids: Tensor
    status: Tensor
    logits: Tensor | None = None

    @classmethod
    def empty(cls, num_reqs: int, device: torch.device) -> "Draft":
        """No token for any request."""
        token_ids = torch.empty((num_reqs, 0), dtype=torch.int64, device=device)
        return cls(token_ids, token_ids.to(torch.int32))

    def shortened(self, max_lens: Sequence[int]) -> "Draft":
        """The same, at most max_lens[i] tokens long for request i."""
        num_tokens = self.token_ids.shape[1]
        if min(max_lens) >= num_tokens:
            return self
        device = self.token_ids.device
        ends = torch.tensor(max_lens, device=device)[:, None]
        behind = torch.arange(num_tokens, device=device) >= ends
        token_ids = self.token_ids.masked_fill(behind, PADDING_TOKEN_ID)
        return Draft(token_ids, self.status.masked_fill(behind, Status.OK), self.logits)


Memory = TypeVar("Memory")


class Drafter(Protocol[Memory]):
    """Proposes draft tokens for a batch."""

    @property
    def num_spec_tokens(self) -> int:
        """How many tokens it drafts at most."""
        ...

    @property
    def max_model_len(self) -> int:
        """How long a sequence it can follow."""
        ...

    def new_memory(self, num_slots: int, max_len: int) -> Memory:
        """Room for num_slots sequences of at most max_len tokens."""
        ...

    def start(self, memory: Memory, slot_id: int, prompt_token_ids: tuple[int, ...]) -> None:
        """Enter a new request's prompt."""
        ...

    def draft(self, memory: Memory, frontier: Frontier, num_tokens: int) -> Draft:
        """Draft up to num_tokens (at least one) for every request."""
        ...


@frozen(eq=False)
class NoDrafter:
    """Plain decoding."""

    num_spec_tokens: int = field(default=0, init=False)
    max_model_len: int = field(default=sys.maxsize, init=False)

    def new_memory(self, num_slots: int, max_len: int) -> None:
        """Nothing to remember."""

    def start(self, memory: None, slot_id: int, prompt_token_ids: tuple[int, ...]) -> None:
        """Nothing to enter."""

    def draft(self, memory: None, frontier: Frontier, num_tokens: int) -> Draft:  # noqa: ARG002
        """Nothing."""
        return Draft.empty(len(frontier.lengths), frontier.lengths.device)
