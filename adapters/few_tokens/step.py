"""What lies between the forwards of a step: one kernel each, in place of many small operations.

What they return is what torch's operations do: see `acceptor.app.step_pieces`, of which this is the
form for a GPU. This module refuses to know models and samplers.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

REQUESTS = 32
"""Of one program."""

PADDING = tl.constexpr(-1)


class StepKernels:
    """See `acceptor.app.step_pieces.StepPieces`."""

    def places_to_draft(
        self, lengths: Tensor, num_tokens: int, limit: int
    ) -> tuple[Tensor, Tensor]:
        """Where a draft is read and decided."""
        num_reqs = len(lengths)
        fed = lengths.new_empty(num_reqs, num_tokens + 1)
        decided = lengths.new_empty(num_tokens, num_reqs)
        places_kernel[_grid(num_reqs)](
            lengths,
            fed,
            decided,
            num_reqs,
            limit,
            TOKENS=num_tokens,
            REQUESTS=REQUESTS,
            num_warps=1,
        )
        return fed, decided

    def chain(
        self,
        drawn: Sequence[Tensor],
        status: Sequence[Tensor],
        last_token_ids: Tensor,
        lengths: Tensor,
        rooms: Tensor,
        limit: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the target is given."""
        num_reqs, num_tokens = len(lengths), len(drawn)
        token_ids = lengths.new_empty(num_reqs, num_tokens + 1)
        positions = torch.empty_like(token_ids)
        statuses = lengths.new_empty(num_reqs, num_tokens, dtype=torch.int32)
        chain_kernel[_grid(num_reqs)](
            # Of no place nothing is read.
            tuple(drawn) or (lengths,),
            tuple(status) or (lengths,),
            last_token_ids,
            last_token_ids.stride(0),
            lengths,
            rooms,
            token_ids,
            positions,
            statuses,
            num_reqs,
            limit,
            TOKENS=num_tokens,
            REQUESTS=REQUESTS,
            num_warps=1,
        )
        return token_ids, positions, statuses

    def hand_over(
        self,
        numbers: Tensor,
        drafted: Tensor,
        draft_status: Tensor,
        emitted: Tensor,
        num_accepted: Tensor,
        status: Tensor,
    ) -> Tensor:
        """Leave a step's answer for the host, and numbers for the next step."""
        num_reqs, num_tokens = drafted.shape
        packed = status.new_empty(num_reqs, 3 * num_tokens + 3)
        hand_over_kernel[_grid(num_reqs)](
            numbers,
            drafted,
            drafted.stride(0),
            draft_status,
            emitted,
            num_accepted,
            status,
            packed,
            num_reqs,
            TOKENS=num_tokens,
            REQUESTS=REQUESTS,
            num_warps=1,
        )
        return packed


def _grid(num_reqs: int) -> tuple[int]:
    return (triton.cdiv(num_reqs, REQUESTS),)


@triton.jit
def places_kernel(
    lengths_ptr, fed_ptr, decided_ptr, num_reqs, limit, TOKENS: tl.constexpr, REQUESTS: tl.constexpr
):
    """Positions that are fed to a draft model, and those that it decides.

    Args:
        lengths_ptr: [num_reqs] int64.
        fed_ptr: [num_reqs, TOKENS + 1] int64, from `length - 2` on, within [0, limit).
        decided_ptr: [TOKENS, num_reqs] int64, from `length` on.
    """
    request = tl.program_id(0) * REQUESTS + tl.arange(0, REQUESTS)
    real = request < num_reqs
    length = tl.load(lengths_ptr + request, mask=real, other=0)
    for place in tl.static_range(TOKENS + 1):
        fed = tl.minimum(tl.maximum(length + (place - 2), 0), limit - 1)
        tl.store(fed_ptr + request * (TOKENS + 1) + place, fed, mask=real)
    for place in tl.static_range(TOKENS):
        tl.store(decided_ptr + place * num_reqs + request, length + place, mask=real)


@triton.jit
def chain_kernel(
    drawn,
    status,
    last_ptr,
    last_stride,
    lengths_ptr,
    rooms_ptr,
    token_ids_ptr,
    positions_ptr,
    statuses_ptr,
    num_reqs,
    limit,
    TOKENS: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    """The last known tokens and what was drawn behind them, as far as there is room.

    Args:
        drawn: TOKENS of [num_reqs] int64.
        status: TOKENS of [num_reqs] int32.
        last_ptr: [num_reqs] int64, with this stride.
        lengths_ptr, rooms_ptr: [num_reqs] int64.
        token_ids_ptr: [num_reqs, TOKENS + 1] int64.
        positions_ptr: [num_reqs, TOKENS + 1] int64, from `length - 1` on, below limit.
        statuses_ptr: [num_reqs, TOKENS] int32.
    """
    request = tl.program_id(0) * REQUESTS + tl.arange(0, REQUESTS)
    real = request < num_reqs
    room = tl.load(rooms_ptr + request, mask=real, other=0)
    length = tl.load(lengths_ptr + request, mask=real, other=0)
    first = request * (TOKENS + 1)
    last = tl.load(last_ptr + request * last_stride, mask=real)
    tl.store(token_ids_ptr + first, last, mask=real)
    for place in tl.static_range(TOKENS + 1):
        tl.store(positions_ptr + first + place, tl.minimum(length + (place - 1), limit - 1), real)
    for place in tl.static_range(TOKENS):
        inside = real & (place < room)
        token = tl.load(drawn[place] + request, mask=inside, other=PADDING)
        tl.store(token_ids_ptr + first + (place + 1), token, mask=real)
        bits = tl.load(status[place] + request, mask=inside, other=0)
        tl.store(statuses_ptr + request * TOKENS + place, bits, mask=real)


@triton.jit
def hand_over_kernel(
    numbers_ptr,
    drafted_ptr,
    drafted_stride,
    draft_status_ptr,
    emitted_ptr,
    num_accepted_ptr,
    status_ptr,
    packed_ptr,
    num_reqs,
    TOKENS: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    """A step's integers side by side, and where the next step begins.

    Args:
        numbers_ptr: [7, num_reqs] int64, see `CapturedStep.numbers`.
        drafted_ptr: [num_reqs, TOKENS] int64, with this stride.
        draft_status_ptr: [num_reqs, TOKENS] int32.
        emitted_ptr: [num_reqs, TOKENS + 1] int64.
        num_accepted_ptr, status_ptr: [num_reqs] int32.
        packed_ptr: [num_reqs, 3 * TOKENS + 3] int32.
    """
    request = tl.program_id(0) * REQUESTS + tl.arange(0, REQUESTS)
    real = request < num_reqs
    accepted = tl.load(num_accepted_ptr + request, mask=real, other=0)
    row = packed_ptr + request * (3 * TOKENS + 3)
    for place in tl.static_range(TOKENS):
        token = tl.load(drafted_ptr + request * drafted_stride + place, mask=real)
        tl.store(row + place, token.to(tl.int32), mask=real)
        bits = tl.load(draft_status_ptr + request * TOKENS + place, mask=real)
        tl.store(row + (TOKENS + place), bits, mask=real)
    # Of the last two known tokens one may be left of them.
    before = tl.load(numbers_ptr + num_reqs + request, mask=real, other=0)
    last = before
    for place in tl.static_range(TOKENS + 1):
        token = tl.load(emitted_ptr + request * (TOKENS + 1) + place, mask=real, other=0)
        tl.store(row + (2 * TOKENS + place), token.to(tl.int32), mask=real)
        before = tl.where(place == accepted - 1, token, before)
        last = tl.where(place == accepted, token, last)
    tl.store(row + (3 * TOKENS + 1), accepted, mask=real)
    tl.store(row + (3 * TOKENS + 2), tl.load(status_ptr + request, mask=real), mask=real)
    # A request that failed has no token there, and no next step that anybody looks at.
    tl.store(numbers_ptr + request, tl.maximum(before, 0), mask=real)
    tl.store(numbers_ptr + num_reqs + request, tl.maximum(last, 0), mask=real)
    length = tl.load(numbers_ptr + 2 * num_reqs + request, mask=real, other=0)
    somebody = tl.load(numbers_ptr + 5 * num_reqs + request, mask=real, other=0)
    tl.store(numbers_ptr + 2 * num_reqs + request, length + (accepted + 1) * somebody, mask=real)
    if TOKENS > 0:
        # A drafter is given all that it drafts but the last.
        tl.store(numbers_ptr + 6 * num_reqs + request, (accepted == TOKENS).to(tl.int64), mask=real)
