"""Stage 2, when some request filters: min-p, top-k and top-p as one threshold per row.

Block statistics prove which blocks can matter, so only those are read again; the few logits that
can be the threshold are ranked against each other. Only where they are too many, as in flat rows,
is the threshold searched for bit by bit. This module refuses to sort a row.
"""

import triton
import triton.language as tl

from .race import NEVER
from .recipe import first_row, load_draft, load_target, request_slot, temperature_of
from .statistics import block_statistics, block_token_ids, normalise

CAPACITY = tl.constexpr(512)
GUESSES = tl.constexpr(8)
TILE = tl.constexpr(16)


@triton.jit
def lower_bound(largest, masses, row_max, total, inverse, top_k, top_p, by_rank, vocab_size):
    """A logit that is certainly not above the threshold of top-k, or else of top-p.

    Every block whose maximum is at least a logit holds one token at least as likely. So k such
    blocks bound the k-th largest logit; and such a block holds, above that logit, no less than its
    maximum's mass, nor less than its mass without 511 tokens that are just below.
    """
    finite = largest > NEVER
    scaled = tl.exp(tl.where(finite, (largest - row_max) * inverse, NEVER))
    masses = masses * scaled
    lowest = tl.min(tl.where(finite, largest, row_max), 0)
    enough = tl.sum(finite.to(tl.int32), 0) >= top_k
    tail = tl.log(vocab_size / tl.maximum(1.0 - top_p, 1e-7)) / inverse
    low = tl.where(by_rank, tl.where(enough, lowest, NEVER), row_max - 1.001 * tail)
    high = row_max
    start = tl.where(low > NEVER, low, high)
    for _ in range(4):
        guess = start + (high - start) * ((tl.arange(0, GUESSES) + 1.0) / GUESSES)
        above = largest[None, :] >= guess[:, None]
        count = tl.sum(above.to(tl.int32), 1)
        below = 511.0 * tl.exp((guess - row_max) * inverse)
        held = tl.maximum(scaled[None, :], masses[None, :] - below[:, None])
        mass = tl.sum(tl.where(above, held, 0.0), 1)
        holds = tl.where(by_rank, count >= top_k, mass >= top_p * total * 1.0001)
        step = (high - start) / GUESSES
        start = tl.max(tl.where(holds, guess, start), 0)
        high = tl.minimum(high, start + step)
    return tl.where(low > NEVER, start, NEVER)


@triton.jit
def load_row(
    target, draft, adjust, requests, request, start, row, token_id, NUM_DRAFTS: tl.constexpr
):
    """Logits of a row, the target's or the draft's."""
    if row <= NUM_DRAFTS:
        logits = load_target(target, adjust, requests, request, start, row, token_id, NUM_DRAFTS)
    else:
        logits = tl.full(token_id.shape, NEVER, tl.float32)
        if draft.logits is not None:
            slot = request_slot(requests, request)
            logits = load_draft(draft, slot, row - NUM_DRAFTS - 1, token_id)
    return logits


@triton.jit
def listed_blocks(scratch, listed, first, num_listed):
    """The next TILE of the listed blocks; behind the end, blocks that do not exist."""
    place = first + tl.arange(0, TILE)
    return tl.load(listed + place, mask=place < num_listed, other=scratch.num_blocks + 1)


@triton.jit
def collect(candidates, logits, bound, num_found):
    """Append the logits that reach a bound, in a fixed order: how many there are now."""
    found = logits >= bound
    flags = found.to(tl.int32)
    per_span = tl.sum(flags, 2)
    per_block = tl.sum(per_span, 0)
    before = (tl.cumsum(per_block, 0) - per_block)[None, :] + tl.cumsum(per_span, 0) - per_span
    place = num_found + before[:, :, None] + tl.cumsum(flags, 2) - 1
    tl.store(candidates + place, logits, mask=found & (place < CAPACITY))
    return num_found + tl.sum(per_block, 0)


@triton.jit
def ranked_threshold(
    candidates,
    num_found,
    row_max,
    total,
    inverse,
    min_p_threshold,
    top_k,
    top_p,
    by_rank,
    by_mass,
    whole_row,
):
    """The threshold, from all logits that can be it: each one's rank and the mass above it."""
    place = tl.arange(0, CAPACITY)
    inside = place < num_found
    logits = tl.load(candidates + place, mask=inside, other=NEVER)
    rank = tl.zeros([CAPACITY], tl.int32)
    mass_above = tl.zeros([CAPACITY], tl.float64)
    for first in range(0, num_found, 8):
        other_place = first + tl.arange(0, 8)
        other = tl.load(candidates + other_place, mask=other_place < num_found, other=NEVER)
        above = other[None, :] > logits[:, None]
        mass = tl.exp((other - row_max) * inverse).to(tl.float64)
        rank += tl.sum(above.to(tl.int32), 1)
        mass_above += tl.sum(tl.where(above, mass[None, :], 0.0), 1)
    kept = inside & (logits >= min_p_threshold) & ((by_rank == 0) | (rank < top_k))
    survivors = tl.exp(tl.where(kept, (logits - row_max) * inverse, NEVER)).to(tl.float64)
    of_mass = tl.where(whole_row, total.to(tl.float64), tl.sum(survivors, 0))
    kept = kept & ((by_mass == 0) | (mass_above < top_p.to(tl.float64) * of_mass))
    return tl.min(tl.where(kept, logits, row_max), 0)


@triton.jit
def as_key(value):
    """An int32 that orders like the float32."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def from_key(key):
    """The float32 of a key."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def searched_threshold(
    target,
    draft,
    adjust,
    requests,
    scratch,
    request,
    start,
    row,
    listed,
    num_listed,
    bound,
    row_max,
    inverse,
    at_least,
    BY_RANK: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """The largest logit that, with all above it, is at least so many or has so much mass.

    Only the upper bits of a key are searched where logits of 16 bits have no others.
    """
    low = as_key(bound).to(tl.int64) >> KEY_SHIFT
    high = (as_key(row_max).to(tl.int64) >> KEY_SHIFT) + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        value = from_key((middle << KEY_SHIFT).to(tl.int32))
        amount = tl.zeros([], tl.float64)
        for first in range(0, num_listed, TILE):
            token_id = block_token_ids(listed_blocks(scratch, listed, first, num_listed))
            logits = load_row(
                target, draft, adjust, requests, request, start, row, token_id, NUM_DRAFTS
            )
            above = (logits >= value) & (logits > NEVER)
            if BY_RANK:
                weights = above.to(tl.float32)
            else:
                weights = tl.exp(tl.where(above, (logits - row_max) * inverse, NEVER))
            amount += tl.sum(tl.sum(tl.sum(weights, 2), 0).to(tl.float64), 0)
        enough = amount >= at_least
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return tl.maximum(from_key((low << KEY_SHIFT).to(tl.int32)), bound)


@triton.jit
def mass_from(
    target,
    draft,
    adjust,
    requests,
    scratch,
    request,
    start,
    row,
    listed,
    num_listed,
    bound,
    row_max,
    inverse,
    NUM_DRAFTS: tl.constexpr,
):
    """The mass of all logits that reach a bound, float64."""
    amount = tl.zeros([], tl.float64)
    for first in range(0, num_listed, TILE):
        token_id = block_token_ids(listed_blocks(scratch, listed, first, num_listed))
        logits = load_row(
            target, draft, adjust, requests, request, start, row, token_id, NUM_DRAFTS
        )
        weights = tl.exp(tl.where(logits >= bound, (logits - row_max) * inverse, NEVER))
        amount += tl.sum(tl.sum(tl.sum(weights, 2), 0).to(tl.float64), 0)
    return amount


@triton.jit
def filter_row(
    target,
    draft,
    adjust,
    requests,
    scratch,
    slot,
    request,
    start,
    row,
    inverse,
    min_p,
    top_k,
    top_p,
    row_max,
    log_total,
    NUM_DRAFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """Find a row's threshold and make its statistics those of what reaches it."""
    out = scratch.statistics + slot.to(tl.int64) * 2 * scratch.num_blocks
    listed = scratch.listed_blocks + slot.to(tl.int64) * scratch.num_blocks
    candidates = scratch.candidates + slot.to(tl.int64) * CAPACITY
    block = tl.arange(0, WIDTH)
    inside = block < scratch.num_blocks
    largest = tl.load(out + block, mask=inside, other=NEVER)
    masses = tl.load(out + scratch.num_blocks + block, mask=inside, other=0.0)
    vocab_size = target.vocab_size
    if row > NUM_DRAFTS:
        vocab_size = tl.minimum(vocab_size, draft.vocab_size)
    by_rank = (top_k > 0) & (top_k < vocab_size)
    by_mass = top_p < 1.0
    # A token at the maximum is never cut off, whatever the rounding.
    min_p_threshold = tl.minimum(row_max + tl.log(min_p) / inverse, row_max)
    bound = min_p_threshold
    if by_rank | (by_mass & (min_p == 0.0)):
        total = tl.exp(log_total)
        floor = lower_bound(
            largest,
            masses,
            row_max,
            total,
            inverse,
            top_k,
            top_p,
            by_rank,
            vocab_size.to(tl.float32),
        )
        bound = tl.maximum(bound, floor)
    reached = inside & (largest >= bound) & (largest > NEVER)
    flags = reached.to(tl.int32)
    num_listed = tl.sum(flags, 0)
    tl.store(listed + tl.cumsum(flags, 0) - 1, block, mask=reached)
    tl.debug_barrier()
    threshold = bound
    if by_rank | by_mass:
        num_found = num_listed * 0
        for first in range(0, num_listed, TILE):
            if num_found <= CAPACITY:
                token_id = block_token_ids(listed_blocks(scratch, listed, first, num_listed))
                logits = load_row(
                    target, draft, adjust, requests, request, start, row, token_id, NUM_DRAFTS
                )
                num_found = collect(
                    candidates, tl.where(logits > NEVER, logits, float("nan")), bound, num_found
                )
        tl.debug_barrier()
        whole_row = (by_rank == 0) & (min_p == 0.0)
        total = tl.exp(log_total)
        if num_found <= CAPACITY:
            threshold = ranked_threshold(
                candidates,
                num_found,
                row_max,
                total,
                inverse,
                min_p_threshold,
                top_k,
                top_p,
                by_rank,
                by_mass,
                whole_row,
            )
        else:
            lowest = tl.maximum(bound, -3.4028234663852886e38)
            if by_rank:
                threshold = searched_threshold(
                    target,
                    draft,
                    adjust,
                    requests,
                    scratch,
                    request,
                    start,
                    row,
                    listed,
                    num_listed,
                    lowest,
                    row_max,
                    inverse,
                    top_k.to(tl.float64),
                    True,
                    NUM_DRAFTS,
                    KEY_SHIFT,
                )
            if by_mass:
                of_mass = total.to(tl.float64)
                if whole_row == 0:
                    of_mass = mass_from(
                        target,
                        draft,
                        adjust,
                        requests,
                        scratch,
                        request,
                        start,
                        row,
                        listed,
                        num_listed,
                        threshold,
                        row_max,
                        inverse,
                        NUM_DRAFTS,
                    )
                lowest = tl.maximum(threshold, lowest)
                threshold = searched_threshold(
                    target,
                    draft,
                    adjust,
                    requests,
                    scratch,
                    request,
                    start,
                    row,
                    listed,
                    num_listed,
                    lowest,
                    row_max,
                    inverse,
                    top_p.to(tl.float64) * of_mass,
                    False,
                    NUM_DRAFTS,
                    KEY_SHIFT,
                )
    tl.store(out + block, NEVER, mask=inside & (largest < threshold))
    tl.store(out + scratch.num_blocks + block, 0.0, mask=inside & (largest < threshold))
    for first in range(0, num_listed, TILE):
        kept_block = listed_blocks(scratch, listed, first, num_listed)
        logits = load_row(
            target,
            draft,
            adjust,
            requests,
            request,
            start,
            row,
            block_token_ids(kept_block),
            NUM_DRAFTS,
        )
        kept, mass = block_statistics(tl.where(logits >= threshold, logits, NEVER), inverse)
        tl.store(out + kept_block, kept, mask=kept_block < scratch.num_blocks)
        tl.store(out + scratch.num_blocks + kept_block, mass, mask=kept_block < scratch.num_blocks)
    tl.debug_barrier()
    largest = tl.load(out + block, mask=inside, other=NEVER)
    masses = tl.load(out + scratch.num_blocks + block, mask=inside, other=0.0)
    _row_max, kept_total = normalise(largest, masses, inverse)
    tl.store(scratch.summaries + slot.to(tl.int64) * 2 + 1, kept_total)
    return threshold


@triton.jit
def filter_of(values, request, neutral):
    """A request's filter, neutral where nobody uses it."""
    if values is None:
        value = neutral
    else:
        value = tl.load(values + request)
    return value


@triton.jit
def filter_kernel(
    target,
    draft,
    requests,
    adjust,
    target_recipe,
    draft_recipe,
    scratch,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEY_SHIFT: tl.constexpr,
):
    """One program per row, as in `statistics_kernel`."""
    slot = tl.program_id(0)
    request = slot // ROWS
    row = slot % ROWS
    start, num_rows = first_row(target, request)
    inverse = 1.0
    greedy = row < 0
    min_p = 0.0
    top_k = row * 0
    top_p = 1.0
    place = row
    if row <= NUM_DRAFTS:
        inverse, greedy = temperature_of(target_recipe, request)
        min_p = filter_of(target_recipe.min_p, request, 0.0)
        top_k = filter_of(target_recipe.top_k, request, 0)
        top_p = filter_of(target_recipe.top_p, request, 1.0)
    elif draft.logits is not None:
        inverse, greedy = temperature_of(draft_recipe, request)
        min_p = filter_of(draft_recipe.min_p, request, 0.0)
        top_k = filter_of(draft_recipe.top_k, request, 0)
        top_p = filter_of(draft_recipe.top_p, request, 1.0)
        place = row - NUM_DRAFTS
    threshold = NEVER
    if (place < num_rows) & (greedy == 0):
        row_max = tl.load(scratch.summaries + slot.to(tl.int64) * 2)
        log_total = tl.load(scratch.summaries + slot.to(tl.int64) * 2 + 1)
        usable = (log_total > NEVER) & (log_total < float("inf"))
        if usable & ((min_p > 0.0) | (top_k > 0) | (top_p < 1.0)):
            threshold = filter_row(
                target,
                draft,
                adjust,
                requests,
                scratch,
                slot,
                request,
                start,
                row,
                inverse,
                min_p,
                top_k,
                top_p,
                row_max,
                log_total,
                NUM_DRAFTS,
                WIDTH,
                KEY_SHIFT,
            )
    tl.store(scratch.thresholds + slot, threshold)
