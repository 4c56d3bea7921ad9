"""What lies between the forwards of a step, each a few sums over integers.

Done by torch, or on a GPU by one kernel each: at these sizes starting a kernel is all that it
costs. This module refuses to know models and samplers.
"""

from collections.abc import Sequence
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from ..adapters.fusion import can_compile
from ..core.batch import PADDING_TOKEN_ID
from ..core.output import Status
from .frontier import places


class StepPieces(Protocol):
    """Three pieces; all ids, positions and lengths are int64."""

    def places_to_draft(
        self, lengths: Tensor, num_tokens: int, limit: int
    ) -> tuple[Tensor, Tensor]:
        """Where a draft of so many tokens is read and decided.

        Args:
            lengths: [num_reqs], how many tokens are known.
            num_tokens: that are drafted.
            limit: no position that is fed reaches it.

        Returns:
            fed: [num_reqs, num_tokens + 1], from the last known token but one on.
            decided: [num_tokens, num_reqs], contiguous, as samplers read rows of it.
        """
        ...

    def chain(
        self,
        drawn: Sequence[Tensor],
        status: Sequence[Tensor],
        last_token_ids: Tensor,
        lengths: Tensor,
        rooms: Tensor,
        limit: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the target is given.

        Args:
            drawn: of each place of the draft, [num_reqs], contiguous.
            status: the same, int32.
            last_token_ids: [num_reqs], the last that are known.
            lengths: [num_reqs], how many those are.
            rooms: [num_reqs], how many draft tokens are of use.
            limit: no position reaches it.

        Returns:
            token_ids: [num_reqs, num_tokens + 1], the last known token, then the draft, and behind
                its room -1.
            positions: [num_reqs, num_tokens + 1], of these.
            status: [num_reqs, num_tokens] int32, behind the room OK.
        """
        ...

    def hand_over(
        self,
        numbers: Tensor,
        drafted: Tensor,
        draft_status: Tensor,
        emitted: Tensor,
        num_accepted: Tensor,
        status: Tensor,
    ) -> Tensor:
        """Leave a step's answer for the host, and numbers for the next step.

        Args:
            numbers: see `CapturedStep.numbers`; written.
            drafted: [num_reqs, num_tokens], of any row stride.
            draft_status: [num_reqs, num_tokens] int32.
            emitted: [num_reqs, num_tokens + 1].
            num_accepted: [num_reqs] int32.
            status: [num_reqs] int32.

        Returns:
            What `pack_integers` returns of the same.
        """
        ...


class PlainPieces:
    """Torch's operations."""

    def places_to_draft(
        self, lengths: Tensor, num_tokens: int, limit: int
    ) -> tuple[Tensor, Tensor]:
        """See `StepPieces.places_to_draft`."""
        device = lengths.device
        # Clamped are positions that a prompt of one token lacks, and those of drafts that are cut.
        fed = (lengths[:, None] + places(-2, num_tokens - 2, device)).clamp(0, limit - 1)
        return fed, lengths + places(0, num_tokens - 1, device)[:, None]

    def chain(
        self,
        drawn: Sequence[Tensor],
        status: Sequence[Tensor],
        last_token_ids: Tensor,
        lengths: Tensor,
        rooms: Tensor,
        limit: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `StepPieces.chain`."""
        num_tokens, device = len(drawn), lengths.device
        behind = places(0, num_tokens - 1, device) >= rooms[:, None]
        token_ids = torch.stack((last_token_ids, *drawn), 1)
        token_ids[:, 1:].masked_fill_(behind, PADDING_TOKEN_ID)
        positions = (lengths[:, None] + places(-1, num_tokens - 1, device)).clamp(max=limit - 1)
        statuses = lengths.new_zeros(behind.shape, dtype=torch.int32)
        for place, bits in enumerate(status):
            statuses[:, place] = bits
        return token_ids, positions, statuses.masked_fill_(behind, Status.OK)

    def hand_over(
        self,
        numbers: Tensor,
        drafted: Tensor,
        draft_status: Tensor,
        emitted: Tensor,
        num_accepted: Tensor,
        status: Tensor,
    ) -> Tensor:
        """See `StepPieces.hand_over`."""
        gained = num_accepted[:, None] + places(1, 2, numbers.device)
        known = torch.cat((numbers[:2].t(), emitted), 1)
        # A request that failed has no token there, and no next step that anybody looks at.
        torch.clamp(known.gather(1, gained).t(), min=0, out=numbers[:2])
        numbers[2].addcmul_(gained[:, 0], numbers[5])
        if drafted.shape[1]:
            # A drafter is given all that it drafts but the last.
            torch.eq(num_accepted, drafted.shape[1], out=numbers[6])
        return pack_integers(drafted, draft_status, emitted, num_accepted, status)


def pack_integers(
    drafted: Tensor,
    draft_status: Tensor,
    emitted: Tensor,
    num_accepted: Tensor,
    status: Tensor,
) -> Tensor:
    """All integers that the host wants to see of a step, so that it reads once.

    Returns:
        [num_reqs, 3 * num_tokens + 3] int32: draft token ids and their status, emitted token ids,
        the number accepted and the status.
    """
    numbers = (num_accepted[:, None], status[:, None])
    return torch.cat((drafted.int(), draft_status, emitted.int(), *numbers), 1)


PLAIN_PIECES = PlainPieces()


@cache
def pieces_on(device: torch.device) -> StepPieces:
    """The fastest there are for a device."""
    if not can_compile(device):
        return PLAIN_PIECES
    # Triton is not installed everywhere.
    from ..adapters.few_tokens.step import StepKernels  # noqa: PLC0415

    return StepKernels()
