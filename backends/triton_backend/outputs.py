"""Stage 5: writes a request's results, once all its rows are decided."""

import triton
import triton.language as tl

from ...core import Status
from .accept import NUM_SUMS
from .adjust import NOWHERE, value_at
from .records import load_decisions
from .rows import drafted_token

GOES_ON = tl.constexpr(-1)
ENDS = tl.constexpr(0)
STOP_DRAFT = tl.constexpr(int(Status.DRAFT_LOGITS_INVALID))
STOP_MASK = tl.constexpr(int(Status.NOTHING_ALLOWED))
BAD_ID = tl.constexpr(int(Status.DRAFT_TOKEN_INVALID))
"""Verdicts on rows: whether a row ends the draft with its token, or a status without one."""


@triton.jit
def first_halt(row, kinds):
    """The first row that ends the draft, and why."""
    halt = tl.min(tl.where(kinds != GOES_ON, row, NOWHERE), 0)
    return halt, value_at(kinds, row, halt)


@triton.jit
def conclude(call, request):
    """End the draft at the first row that ends it, and write the results."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    kinds, tokens, caused, undecided = load_decisions(call, request.index, row)
    if call.variant.policy == "fly":
        forgiven = undecided > 0.0
        for ahead in range(1, call.leniency.window + 1):
            following, _, _, _ = load_decisions(call, request.index, row + ahead)
            forgiven = forgiven & (following == GOES_ON)
        kinds = tl.where(forgiven & (undecided < 2.0) & (kinds == ENDS), GOES_ON, kinds)
        caused = tl.where(forgiven, caused, 0.0)
    halt, kind = first_halt(row, kinds)
    if call.outputs.total_variation is not None:
        decided = (row <= halt) & (kinds <= ENDS)
        out = call.outputs.total_variation + request.index.to(tl.int64) * (NUM_DRAFTS + 1)
        tl.store(out + row, tl.where(decided, caused, 0.0), mask=row <= NUM_DRAFTS)
    write_outputs(call, request, halt, kind, value_at(tokens, row, halt))


@triton.jit
def write_outputs(call, request, halt, kind, token):
    """Write the accepted tokens, the final one, -1 after it, the count and the status.

    Then zero the counters that programs shared, as the next call expects.
    """
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    place = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    emitted = tl.where(kind == ENDS, token, -1)
    accepted = drafted_token(call, request.index, place, place < request.num_drafts)
    ids = tl.where(place < halt, accepted, tl.where(place == halt, emitted, -1))
    out = call.outputs.token_ids + request.index.to(tl.int64) * (NUM_DRAFTS + 1) + place
    tl.store(out, ids.to(tl.int64), mask=place <= NUM_DRAFTS)
    if call.outputs.num_accepted is not None:
        tl.store(call.outputs.num_accepted + request.index, halt)
    tl.store(call.outputs.status + request.index, kind + request.flagged * BAD_ID)
    tl.store(call.scratch.arrivals + request.index, 0)
    if call.scratch.num_touched is not None:
        tl.store(call.scratch.num_touched + request.index, 0)
    if call.scratch.sums is not None:
        NUM_WORDS: tl.constexpr = call.variant.num_drafts * NUM_SUMS
        word = tl.arange(0, triton.next_power_of_2(NUM_WORDS))
        sums = call.scratch.sums + request.index.to(tl.int64) * NUM_WORDS
        tl.debug_barrier()
        tl.store(sums + word, 0, mask=word < NUM_WORDS)
