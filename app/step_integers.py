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
    draft_limits: Tensor,
    limit: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The last known token, the draft behind it, and where they are.

    Args:
        drawn: of each place of the draft, [num_reqs].
        status: the same, int32.
        last_token_ids: [num_reqs], the last that are known.
        lengths: [num_reqs], how many those are.
        draft_limits: [num_reqs], how many draft tokens are of use.
        limit: no position reaches it.

    Returns:
        token_ids: [num_reqs, num_tokens + 1], the last known token, then the draft, and behind its
            limit -1.
        positions: [num_reqs, num_tokens + 1], of these.
        status: [num_reqs, num_tokens] int32, behind the limit OK.
    """
    num_tokens, device = len(drawn), lengths.device
    positions = (lengths[:, None] + places(-1, num_tokens - 1, device)).clamp(max=limit - 1)
    token_ids = torch.stack((last_token_ids, *drawn), 1)
    if not num_tokens:
        return token_ids, positions, lengths.new_zeros((len(lengths), 0), dtype=torch.int32)
    behind = places(0, num_tokens - 1, device) >= draft_limits[:, None]
    token_ids[:, 1:].masked_fill_(behind, PADDING_TOKEN_ID)
    return token_ids, positions, torch.stack(tuple(status), 1).masked_fill_(behind, Status.OK)
