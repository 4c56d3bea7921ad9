"""One row, for lossy policies, from its block statistics: what it sums up to, and a token.

This module refuses to read more of a row's logits than the block that wins.
"""

import triton
import triton.language as tl

from .race import (
    BLOCK,
    NEVER,
    block_arrivals,
    block_winner,
    lowest_argmax,
    token_arrivals,
    token_winner,
)
from .recipe import load_target
from .request import noise_key


@triton.jit
def block_values(call, slot):
    """Block maxima and masses of a row: two [WIDTH] float32; a mass of 1 if none were kept."""
    num_blocks = call.scratch.num_blocks
    block = tl.arange(0, call.variant.width)
    place = call.scratch.statistics + slot * 2 * num_blocks + block
    inside = block < num_blocks
    largest = tl.load(place, mask=inside, other=NEVER)
    if call.variant.with_masses:
        masses = tl.load(place + num_blocks, mask=inside, other=0.0)
    else:
        masses = tl.where(largest == NEVER, 0.0, 1.0)
    return largest, masses


@triton.jit
def summary_of(call, slot):
    """A row's largest logit, the log of its total relative to it, and whether it is usable."""
    place = call.scratch.summaries + slot * 2
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
def draw_from_row(call, request, row, largest, masses, stream, draft_index):
    """A token of a target row, from its block statistics: scalar int32.

    Args:
        call, request, row: what to draw from.
        largest, masses: [WIDTH], the row's block statistics.
        stream, draft_index: scalars, what the noise is keyed by.
    """
    seed, position = noise_key(call, request, row)
    position += tl.zeros([1], tl.int32)
    draft_index += position * 0
    if call.variant.all_greedy:
        block = tl.arange(0, call.variant.width)[None, :]
        winner = lowest_argmax(largest[None, :], block)
    else:
        arrivals = block_arrivals(seed, position, draft_index, stream, call.variant.width)
        winner = block_winner(
            largest[None, :], masses[None, :], request.inverse, request.greedy, arrivals
        )
    # An unusable row has no winner; what it draws is thrown away.
    winner = tl.minimum(winner, call.scratch.num_blocks - 1)
    logits, token_id = block_logits(call, request, row, winner[:, None])
    if call.variant.all_greedy:
        winners = lowest_argmax(logits, token_id)
    else:
        arrivals = token_arrivals(seed, position, draft_index, stream, winner)
        winners = token_winner(
            logits, logits > NEVER, token_id, request.inverse, request.greedy, arrivals
        )
    return tl.min(winners, 0)
