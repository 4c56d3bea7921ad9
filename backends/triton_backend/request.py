"""What a program must know about its request; refuses to touch logits."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .recipe import first_row, num_usable_drafts, temperature_of


class Request(NamedTuple):
    """One request inside a kernel, see `open_request`."""

    index: Any
    start: Any
    """Its first row of target logits, int64."""
    num_rows: Any
    num_drafts: Any
    """The draft's length up to the first bad id."""
    flagged: Any
    """1 where that id is out of range."""
    inverse: Any
    """1 / temperature of the target's recipe."""
    greedy: Any
    draft_inverse: Any
    dense: Any
    """Whether draft tokens were drawn from draft logits, not chosen outright."""


@triton.jit
def open_request(call, index):
    """The request of this index."""
    inverse, greedy = temperature_of(call.target_recipe, index)
    start, num_rows = first_row(call.target, index)
    num_drafts, flagged = num_usable_drafts(
        call.target, call.requests, index, num_rows, call.variant.num_drafts
    )
    draft_inverse = inverse
    dense = index < 0
    if call.draft.logits is not None:
        draft_inverse, one_hot = temperature_of(call.draft_recipe, index)
        dense = one_hot == 0
    return Request(
        index, start, num_rows, num_drafts, flagged, inverse, greedy, draft_inverse, dense
    )


@triton.jit
def drafted_token(call, request, row):
    """The draft token that a row tests, 0 where there is none: scalar int32."""
    ids = call.requests.draft_token_ids
    if ids is None:
        token = row * 0
    else:
        place = ids + request.index.to(tl.int64) * call.requests.draft_stride + row
        token = tl.load(place, mask=row < request.num_drafts, other=0).to(tl.int32)
    return token


@triton.jit
def noise_key(call, request, row):
    """The seed and the position that a row decides."""
    seed = tl.load(call.requests.seeds + request.index)
    return seed, tl.load(call.requests.positions + request.index).to(tl.int32) + row
