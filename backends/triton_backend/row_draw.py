"""One row from its block statistics: what it sums up to, and one token of its law.

This module refuses to read more of a row's logits than the block that wins, and the block of a
token that must not be drawn.
"""

import triton
import triton.language as tl

from .race import BLOCK, NEVER, block_winner, lowest_argmax, token_noise
from .recipe import load_target
from .request import noise_key
from .statistics import normalise


@triton.jit
def block_values(call, slot):
    """Block maxima and masses of a row: two [WIDTH] float32."""
    WIDTH: tl.constexpr = call.variant.width
    return load_blocks(call.scratch.statistics, slot, call.scratch, call.variant.with_masses, WIDTH)


@triton.jit
def load_blocks(base, slot, scratch, WITH_MASSES: tl.constexpr, WIDTH: tl.constexpr):
    """Maxima and masses of all blocks: two [WIDTH] float32; a mass of 1 if none were kept."""
    block = tl.arange(0, WIDTH)
    place = base + slot * 2 * scratch.num_blocks + block
    inside = block < scratch.num_blocks
    largest = tl.load(place, mask=inside, other=NEVER)
    if WITH_MASSES:
        masses = tl.load(place + scratch.num_blocks, mask=inside, other=0.0)
    else:
        masses = tl.where(largest == NEVER, 0.0, 1.0)
    return largest, masses


@triton.jit
def summarise(call, slot, largest, masses, inverse):
    """A row's largest logit, the log of its total relative to it, and whether it is usable."""
    place = call.scratch.summaries + slot * 2
    if call.variant.reads:
        row_max, log_total = normalise(largest, masses, inverse)
        tl.store(place, row_max)
        tl.store(place + 1, log_total)
    else:
        row_max = tl.load(place)
        log_total = tl.load(place + 1)
    return row_max, log_total, (log_total > NEVER) & (log_total < float("inf"))


@triton.jit
def threshold_of(call, slot):
    """The smallest logit that a row's filters keep."""
    if call.scratch.thresholds is None:
        threshold = NEVER
    else:
        threshold = tl.load(call.scratch.thresholds + slot)
    return threshold


@triton.jit
def block_logits(call, request, row, block):
    """One block of a target row, -inf where filters cut, and its token ids: [1, BLOCK] each."""
    token_id = block * BLOCK + tl.arange(0, BLOCK)[None, :]
    logits = load_target(
        call.target,
        call.adjust,
        call.requests,
        request.index,
        request.start,
        row,
        token_id,
        call.variant.num_drafts,
    )
    slot = request.index.to(tl.int64) * call.variant.num_rows + row
    return tl.where(logits >= threshold_of(call, slot), logits, NEVER), token_id


@triton.jit
def draw_from_row(call, request, row, largest, masses, stream, draft_index, excluded):
    """A token of a target row, from its block statistics: scalar int32.

    Args:
        call, request, row: what to draw from.
        largest, masses: [WIDTH], the row's block statistics.
        stream, draft_index: scalars, what the noise is keyed by.
        excluded: scalar, a token that must not be drawn, -1 for none; None if there is none ever.
    """
    seed, position = noise_key(call, request, row)
    position += tl.zeros([1], tl.int32)
    draft_index += position * 0
    if call.variant.all_greedy:
        block = tl.arange(0, call.variant.width)[None, :]
        winner = lowest_argmax(largest[None, :], block)
    else:
        winner = block_winner(
            largest[None, :],
            masses[None, :],
            request.inverse,
            request.greedy,
            seed,
            position,
            draft_index,
            stream,
        )
    # An unusable row has no winner; what it draws is thrown away.
    winner = tl.minimum(winner, call.scratch.num_blocks - 1)
    logits, token_id = block_logits(call, request, row, winner[:, None])
    if excluded is not None:
        logits = tl.where(token_id == excluded, NEVER, logits)
    if call.variant.all_greedy:
        scores = logits
    else:
        noise = token_noise(seed, position, draft_index, stream, winner)
        relative = logits - tl.max(logits, 1)[:, None]
        scores = tl.where(request.greedy, logits, relative * request.inverse - noise)
    return tl.min(lowest_argmax(scores, token_id), 0)


@triton.jit
def draw_another(call, request, row, excluded, stream, draft_index):
    """A token of a target row other than this one, unless nothing else has any mass."""
    slot = request.index.to(tl.int64) * call.variant.num_rows + row
    largest, masses = block_values(call, slot)
    logits, token_id = block_logits(call, request, row, excluded // BLOCK)
    logits = tl.where(token_id == excluded, NEVER, logits)
    block_max = tl.max(tl.max(logits, 1), 0)
    reference = tl.where(block_max == NEVER, 0.0, block_max)
    weights = tl.exp((logits - reference) * request.inverse)
    mass = tl.sum(tl.sum(weights.to(tl.float64), 1), 0).to(tl.float32)
    touched = tl.arange(0, call.variant.width) == excluded // BLOCK
    other_largest = tl.where(touched, block_max, largest)
    anything = tl.max(other_largest, 0) > NEVER
    largest = tl.where(anything, other_largest, largest)
    masses = tl.where(anything, tl.where(touched, mass, masses), masses)
    excluded = tl.where(anything, excluded, -1)
    return draw_from_row(call, request, row, largest, masses, stream, draft_index, excluded)
