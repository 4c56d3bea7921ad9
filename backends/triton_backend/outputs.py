"""What is returned about a request; refuses to decide what that is."""

import triton
import triton.language as tl

from .verdicts import BONUS, REJECTED, STOP_DRAFT, STOP_TARGET


@triton.jit
def write_outputs(call, request, halt, kind, token):
    """Write the accepted tokens, the last one, -1 behind it, the count and the status."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    place = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    emitted = tl.where((kind == REJECTED) | (kind == BONUS), token, -1)
    ids = tl.where(place == halt, emitted, -1).to(tl.int64)
    if NUM_DRAFTS > 0:
        drafted = call.requests.draft_token_ids + place
        drafted += request.index.to(tl.int64) * call.requests.draft_stride
        ids = tl.where(place < halt, tl.load(drafted, mask=place < halt, other=-1), ids)
    out = call.outputs.token_ids + request.index.to(tl.int64) * (NUM_DRAFTS + 1) + place
    tl.store(out, ids, mask=place <= NUM_DRAFTS)
    if call.outputs.num_accepted is not None:
        tl.store(call.outputs.num_accepted + request.index, halt)
    stopped = tl.where(kind == STOP_TARGET, call.variant.invalid, 0)
    stopped += tl.where(kind == STOP_DRAFT, 2, 0)
    tl.store(call.outputs.status + request.index, stopped + request.flagged * 4)
