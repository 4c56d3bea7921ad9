"""Sums over all tokens of a row, which lossy policies need beside its law: one more reading.

Sums are integers, so they do not depend on how many programs add them up.
"""

import triton
import triton.language as tl

from . import accept
from .accept import ENTROPY, MOVED, SURVIVED
from .device import wait_for_stage_before
from .logits import NEVER, draft_logits, is_allowed
from .quarters import QUARTER, TILE, law_quarters, quarter_ids, quarters_sum
from .records import blocks_of, law_of, log_probs
from .rows import open_request, open_row
from .units import LOWEST_FINITE, in_units


@triton.jit
def sums_stage(call, num_parts, tiles_per_part, WHAT: tl.constexpr):
    """A program per part of a row that tests a draft token.

    WHAT is ENTROPY, the target's; SURVIVED, the share of drafts that would survive; or MOVED, the
    total variation that this causes. A surviving token replaces a draw from p, so the emitted law
    is q a + p (1 - sum(q a)). Both laws have the same mass, so their distance is the part of q a
    above p sum(q a).
    """
    number = tl.program_id(0) // num_parts
    place = number % call.variant.num_drafts
    request = open_request(call, number // call.variant.num_drafts)
    row = open_row(call, request.index * call.variant.num_rows + place)
    tested = (place < request.num_drafts) & (request.greedy == 0)
    drafted = accept.open_draft(call, row, tested)
    wait_for_stage_before(call)
    if tested:
        law, needed = law_of(call, row)
        test = accept.test_draft(call, row, law, drafted, tested)
        survived = law.row_max * 0.0 + 1.0
        bar = (LOWEST_FINITE, NEVER)
        if WHAT != ENTROPY:
            needed = needed & test.dense
            bar = accept.bar_of(call, row, law)
            if call.variant.policy == "fly":
                nats = accept.load_sum(call, row.request, row.place, ENTROPY)
                needed = needed & (nats >= call.leniency.strictness)
            # Without masks FLy forgives all drafts of a row.
            if WHAT == MOVED and (call.variant.policy != "fly" or call.masks.words is not None):
                survived = accept.load_sum(call, row.request, row.place, SURVIVED)
        bounds = bar, survived
        if needed:
            first = tl.program_id(0) % num_parts * tiles_per_part
            last = tl.minimum(first + tiles_per_part, tl.cdiv(call.scratch.num_blocks, TILE))
            total = first.to(tl.int64) * 0
            for tile in range(first, last):
                block = tile * TILE + tl.arange(0, TILE)
                inside = block < call.scratch.num_blocks
                largest = tl.load(blocks_of(call, row.slot) + block, mask=inside, other=NEVER)
                reached = accept.accepts(call, largest, law, bar) & inside
                if tl.max(reached.to(tl.int32), 0) > 0:
                    ids = quarter_ids(block)
                    quarters = law_quarters(call, row, block)
                    terms = [
                        _terms(call, row, quarters[n], ids + n * QUARTER, law, test, bounds, WHAT)
                        for n in (0, 1, 2, 3)
                    ]
                    total += tl.sum(in_units(quarters_sum(terms)), 0)
            tl.atomic_add(accept.sums_of(call, row.request, place) + WHAT, total, sem="relaxed")


@triton.jit
def _terms(call, row, logits, ids, law, test, bounds, WHAT: tl.constexpr):
    log_p = log_probs(logits, law)
    if WHAT == ENTROPY:
        log_p = tl.minimum(log_p, 0.0)
        terms = tl.where(log_p > NEVER, -log_p * tl.exp(log_p), 0.0)
    else:
        bar, survived = bounds
        terms = tl.exp(log_probs(draft_logits(call, row, ids, True), test.draft_law))
        counts = accept.accepts(call, logits, law, bar)
        # Only FLy accepts tokens of probability 0, as forbidden ones have.
        if call.variant.policy == "fly" and call.masks.words is not None:
            counts = counts & is_allowed(call, row, ids)
        terms = tl.where(counts, terms, 0.0)
        if WHAT == MOVED:
            terms = tl.maximum(terms - tl.exp(log_p) * survived, 0.0)
    return terms
