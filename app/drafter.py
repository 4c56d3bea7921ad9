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
from .frontier import Frontier, places


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

    def shorten(self, max_lens: Tensor) -> None:
        """Leave at most max_lens[i] tokens of request i, in place; max_lens: [num_reqs] int64."""
        behind = places(0, self.token_ids.shape[1] - 1, max_lens.device) >= max_lens[:, None]
        self.token_ids.masked_fill_(behind, PADDING_TOKEN_ID)
        self.status.masked_fill_(behind, Status.OK)


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

    @property
    def on_device(self) -> bool:
        """Whether it computes on tensors alone, so that drafting can be captured in a graph.

        Otherwise it reads `Frontier.known` on the host.
        """
        ...

    def enter(self, memory: Memory, slot_id: int, prompt: Sequence[int], start: int) -> None:
        """Take in the tokens from place `start` on of a prompt that is known so far.

        Args:
            memory: from `new_memory`.
            slot_id: of the request.
            prompt: the prompt's beginning, without its last token.
            start: what lies before has been entered.
        """
        ...

    def clear(self, memory: Memory, slot_id: int) -> None:
        """Forget a slot whose sequence may have left NaN or infinity behind."""
        ...

    def draft(self, memory: Memory, frontier: Frontier, num_tokens: int) -> Draft:
        """Draft up to num_tokens (at least one) for every request."""
        ...


@frozen(eq=False)
class NoDrafter:
    """Plain decoding."""

    num_spec_tokens: int = field(default=0, init=False)
    max_model_len: int = field(default=sys.maxsize, init=False)
    on_device: bool = field(default=True, init=False)

    def new_memory(self, num_slots: int, max_len: int) -> None:
        """Nothing to remember."""

    def enter(self, memory: None, slot_id: int, prompt: Sequence[int], start: int) -> None:
        """Nothing to enter."""

    def clear(self, memory: None, slot_id: int) -> None:
        """Nothing to forget."""

    def draft(self, memory: None, frontier: Frontier, num_tokens: int) -> Draft:  # noqa: ARG002
        """Nothing."""
        return Draft.empty(len(frontier.lengths), frontier.lengths.device)
