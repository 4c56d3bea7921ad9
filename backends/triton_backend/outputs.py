"""What is returned about a request; refuses to decide what that is."""

import triton
import triton.language as tl

from .accept import drafted_tokens
from .verdicts import BONUS, REJECTED, STOP_DRAFT, STOP_TARGET


@triton.jit
def write_outputs(
    outputs,
    requests,
    request,
    halt,
    kind,
    token,
    flagged,
    num_drafts,
    NUM_DRAFTS: tl.constexpr,
    INVALID: tl.constexpr,
):
    """Write the accepted tokens, the last one, -1 behind it, the count and the status."""
    PLACES: tl.constexpr = triton.next_power_of_2(NUM_DRAFTS + 1)
    place = tl.arange(0, PLACES)
    emitted = tl.where((kind == REJECTED) | (kind == BONUS), token, -1)
    ids = tl.where(place == halt, emitted, -1)
    if NUM_DRAFTS > 0:
        ids = tl.where(place < halt, drafted_tokens(requests, request, place, num_drafts), ids)
    out = outputs.token_ids + request.to(tl.int64) * (NUM_DRAFTS + 1) + place
    tl.store(out, ids.to(tl.int64), mask=place <= NUM_DRAFTS)
    if outputs.num_accepted is not None:
        tl.store(outputs.num_accepted + request, halt)
    stopped = tl.where(kind == STOP_TARGET, INVALID, 0) + tl.where(kind == STOP_DRAFT, 2, 0)
    tl.store(outputs.status + request, stopped + flagged * 4)
