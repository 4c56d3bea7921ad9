"""Which tokens requests may emit: the port for grammars, and the masks of one step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from attrs import define, field, frozen
from torch import Tensor

from ..adapters.error_text import ends_program, with_kind
from ..core import num_mask_words, pack_allowed


class TokenMasks(Protocol):
    """Follows one output, and says which tokens may come next."""

    def fill(self, masks: Tensor, draft_token_ids: Sequence[int]) -> None:
        """Write the masks of a step; the state does not change.

        Args:
            masks: [len(draft_token_ids) + 1, num_words] int32 on the host. Row i is the mask after
                the output and i draft tokens; after a forbidden token it may be anything.
            draft_token_ids: the draft.
        """

    def accept(self, token_id: int) -> None:
        """Advance by the emitted tokens."""


NewTokenMasks = Callable[[], TokenMasks]
"""Makes the masks of one output."""


@define(eq=False)
class GuardedMasks:
    """Masks of a request. Once they fail, they allow no token, which ends this request alone.

    Attributes:
        error: how they failed, in one sentence; else empty.
    """

    new_masks: NewTokenMasks
    error: str = field(default="", init=False)
    _masks: TokenMasks = field(init=False)

    def __attrs_post_init__(self) -> None:
        with self._noting():
            self._masks = self.new_masks()

    def fill(self, masks: Tensor, draft_token_ids: Sequence[int]) -> None:
        """See `TokenMasks.fill`."""
        with self._noting():
            self._masks.fill(masks, draft_token_ids)
        if self.error:
            masks.zero_()

    def accept(self, token_id: int) -> None:
        """See `TokenMasks.accept`."""
        with self._noting():
            self._masks.accept(token_id)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if ends_program(error):
                raise
            said = f"new_masks: expected masks of each step, got {with_kind(error)}"
            self.error = self.error or said


@frozen(eq=False)
class StepMasks:
    """`allowed_tokens` and `allowed_rows` of a `VerifyBatch`."""

    allowed_tokens: Tensor
    allowed_rows: Tensor

    @classmethod
    def empty(cls, num_rows: int, vocab_size: int, device: torch.device) -> "StepMasks":
        """Masks of this many rows, which all allow every token."""
        shape = num_rows, num_mask_words(vocab_size)
        words = torch.zeros(shape, dtype=torch.int32, device=device)
        return cls(words, torch.full((num_rows,), -1, dtype=torch.int32, device=device))

    @classmethod
    def of_each_row(cls, allowed: Tensor) -> "StepMasks":
        """Masks from flags [num_rows, vocab_size] bool."""
        return cls(pack_allowed(allowed), torch.arange(len(allowed), device=allowed.device))

    def to(self, device: torch.device) -> "StepMasks":
        """The same masks on a device."""
        return StepMasks(self.allowed_tokens.to(device), self.allowed_rows.to(device))

    def load(self, masks: "StepMasks") -> None:
        """Copy masks of as many rows or fewer; the remaining rows allow every token."""
        self.allowed_rows.fill_(-1)
        self.allowed_rows[: len(masks.allowed_rows)].copy_(masks.allowed_rows, non_blocking=True)
        num_masks = len(masks.allowed_tokens)
        self.allowed_tokens[:num_masks].copy_(masks.allowed_tokens, non_blocking=True)


def fill_masks(
    requests: Sequence[TokenMasks | None], drafts: Sequence[Sequence[int]], vocab_size: int
) -> StepMasks:
    """Make the masks of a step's rows, on the host.

    Args:
        requests: each request's masks, in the batch's order; None if it allows all tokens.
        drafts: each request's draft, all of one length; a draft ends before the first -1.
    """
    num_rows = len(drafts[0]) + 1
    rows = torch.full((len(requests), num_rows), -1, dtype=torch.int32)
    masked = [place for place, request in enumerate(requests) if request is not None]
    words = torch.full((len(masked), num_rows, num_mask_words(vocab_size)), -1, dtype=torch.int32)
    for number, place in enumerate(masked):
        request, draft = requests[place], drafts[place]
        assert request is not None
        length = draft.index(-1) if -1 in draft else len(draft)
        request.fill(words[number, : length + 1], draft[:length])
        rows[place] = torch.arange(number * num_rows, (number + 1) * num_rows)
    return StepMasks(words.flatten(0, 1), rows.flatten())
