"""What a step computes between its forwards: token ids, positions and lengths, all int64."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.batch import PADDING_TOKEN_ID
from ..core.output import Status
from .frontier import places


def places_to_draft(lengths: Tensor, num_tokens: int, limit: int) -> tuple[Tensor, Tensor]:
    """Where a draft of so many tokens is read and decided.

    Args:
        lengths: [num_reqs], how many tokens are known.
        num_tokens: that are drafted.
        limit: no position that is fed reaches it.

    Returns:
        fed: [num_reqs, num_tokens + 1], from the last known token but one on.
        decided: [num_tokens, num_reqs], contiguous, as samplers read rows of it.
    """
    device = lengths.device
    # Clamped are positions that a prompt of one token lacks, and those of drafts that are cut.
    fed = (lengths[:, None] + places(-2, num_tokens - 2, device)).clamp(0, limit - 1)
    return fed, lengths + places(0, num_tokens - 1, device)[:, None]


def chain(
    drawn: Sequence[Tensor],
    status: Sequence[Tensor],
    last_token_ids: Tensor,
    lengths: Tensor,
    rooms: Tensor,
    limit: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The last known token, the draft behind it, and where they are.

    Args:
        drawn: of each place of the draft, [num_reqs].
        status: the same, int32.
        last_token_ids: [num_reqs], the last that are known.
        lengths: [num_reqs], how many those are.
        rooms: [num_reqs], how many draft tokens are of use.
        limit: no position reaches it.

    Returns:
        token_ids: [num_reqs, num_tokens + 1], the last known token, then the draft, and behind its
            room -1.
        positions: [num_reqs, num_tokens + 1], of these.
        status: [num_reqs, num_tokens] int32, behind the room OK.
    """
    num_tokens, device = len(drawn), lengths.device
    positions = (lengths[:, None] + places(-1, num_tokens - 1, device)).clamp(max=limit - 1)
    token_ids = torch.stack((last_token_ids, *drawn), 1)
    if not num_tokens:
        return token_ids, positions, lengths.new_zeros((len(lengths), 0), dtype=torch.int32)
    behind = places(0, num_tokens - 1, device) >= rooms[:, None]
    token_ids[:, 1:].masked_fill_(behind, PADDING_TOKEN_ID)
    return token_ids, positions, torch.stack(tuple(status), 1).masked_fill_(behind, Status.OK)


def hand_over(
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
    gained = num_accepted[:, None] + places(1, 2, numbers.device)
    known = torch.cat((numbers[:2].t(), emitted), 1)
    # A request that failed has no token there, and no next step that anybody looks at.
    torch.clamp(known.gather(1, gained).t(), min=0, out=numbers[:2])
    numbers[2].addcmul_(gained[:, 0], numbers[5])
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
