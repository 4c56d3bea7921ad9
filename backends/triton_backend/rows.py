"""Stage 2: block statistics of a few rows at once, combined into what whole rows are about.

This module refuses to decide: see `accept`.
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


@triton.jit
def load_statistics(
    rows, stride, num_blocks, valid, WITH_MASSES: tl.constexpr, WIDTH: tl.constexpr
):
    """Block maxima and masses of rows: two [rows, WIDTH] float32.

    Args:
        rows: [rows] pointers.
        stride: from a row's maxima to its masses.
        num_blocks: how many blocks there are.
        valid: [rows], False where nothing was written: read as a row without any mass.
    """
    block = tl.arange(0, WIDTH)[None, :]
    inside = (block < num_blocks) & valid[:, None]
    largest = tl.load(rows[:, None] + block, mask=inside, other=NEVER)
    if WITH_MASSES:
        masses = tl.load(rows[:, None] + stride + block, mask=inside, other=0.0)
    else:
        masses = tl.where(largest == NEVER, 0.0, 1.0)
    return largest, masses


@triton.jit
def load_summaries(scratch, slot, valid):
    """Of each row: the largest logit, the log of its total relative to it, usable."""
    place = scratch.summaries + slot * 2
    row_max = tl.load(place, mask=valid, other=0.0)
    log_total = tl.load(place + 1, mask=valid, other=float("inf"))
    return row_max, log_total, (log_total > NEVER) & (log_total < float("inf"))


@triton.jit
def are_usable(largest, masses):
    """What `load_summaries` says of rows, from their block statistics: [rows]."""
    row_max = tl.max(largest, 1)
    lost = tl.max(tl.where(masses >= 0.0, 0, 1), 1)
    return (row_max > NEVER) & (row_max < float("inf")) & (lost == 0)


@triton.jit
def thresholds_of(scratch, slot, valid):
    """The smallest logit that each row's filters keep: [rows]."""
    if scratch.thresholds is None:
        threshold = tl.where(valid, NEVER, NEVER)
    else:
        threshold = tl.load(scratch.thresholds + slot, mask=valid, other=NEVER)
    return threshold


@triton.jit
def without_token(
    largest,
    masses,
    target,
    adjust,
    requests,
    request,
    start,
    row,
    excluded,
    inverse_temperature,
    threshold,
    NUM_DRAFTS: tl.constexpr,
):
    """Block statistics as if one token per row had no mass, and that token.

    Where nothing else has any mass, they stay as they are, and the token comes back as -1.
    """
    token_id = (excluded // BLOCK * BLOCK)[:, None] + tl.arange(0, BLOCK)[None, :]
    logits = load_target(
        target, adjust, requests, request, start, row[:, None], token_id, NUM_DRAFTS
    )
    kept = (logits >= threshold[:, None]) & (token_id != excluded[:, None])
    logits = tl.where(kept, logits, NEVER)
    block_max = tl.max(logits, 1)
    reference = tl.where(block_max == NEVER, 0.0, block_max)
    weights = tl.exp((logits - reference[:, None]) * inverse_temperature)
    mass = tl.sum(weights.to(tl.float64), 1).to(tl.float32)
    touched = tl.arange(0, largest.shape[1])[None, :] == (excluded // BLOCK)[:, None]
    touched = touched & (excluded >= 0)[:, None]
    new_largest = tl.where(touched, block_max[:, None], largest)
    new_masses = tl.where(touched, mass[:, None], masses)
    anything = tl.max(new_largest, 1) > NEVER
    largest = tl.where(anything[:, None], new_largest, largest)
    masses = tl.where(anything[:, None], new_masses, masses)
    return largest, masses, tl.where(anything, excluded, -1)


@triton.jit
def target_samples(
    target,
    adjust,
    requests,
    scratch,
    request,
    start,
    row,
    valid,
    largest,
    masses,
    inverse_temperature,
    greedy,
    stream,
    draft_index,
    excluded,
    arrivals,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    ALL_GREEDY: tl.constexpr,
):
    """One token per row from the target's law: [rows] int32.

    Args:
        target, adjust, requests, scratch: see `arguments`.
        request, start: scalars, the request and its first row of logits.
        row, valid: [rows], which of its rows, and whether it has them.
        largest, masses: [rows, num_blocks], the rows' block statistics.
        inverse_temperature, greedy, stream: scalars.
        draft_index: [rows], what the noise is keyed by.
        excluded: [rows], a token that must not be drawn, -1 for none; None if no row has one.
        arrivals: [rows, num_blocks], see `block_arrivals`; None to make them here.
        NUM_DRAFTS, ROWS, ALL_GREEDY: see `statistics_kernel`.
    """
    block = tl.arange(0, largest.shape[1])[None, :]
    threshold = thresholds_of(scratch, request * ROWS + row, valid)
    if excluded is not None:
        largest, masses, excluded = without_token(
            largest,
            masses,
            target,
            adjust,
            requests,
            request,
            start,
            row,
            excluded,
            inverse_temperature,
            threshold,
            NUM_DRAFTS,
        )
    seed = tl.load(requests.seeds + request)
    position = tl.load(requests.positions + request).to(tl.int32) + row
    if ALL_GREEDY:
        winner = lowest_argmax(largest, tl.broadcast_to(block, largest.shape))
    else:
        if arrivals is None:
            arrivals = block_arrivals(seed, position, draft_index, stream, largest.shape[1])
        winner = block_winner(largest, masses, inverse_temperature, greedy, arrivals)
    # An unusable row has no winner; what it draws is thrown away.
    winner = tl.minimum(winner, scratch.num_blocks - 1)
    token_id = winner[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    logits = load_target(
        target,
        adjust,
        requests,
        request,
        start,
        row[:, None],
        tl.where(valid[:, None], token_id, target.vocab_size),
        NUM_DRAFTS,
    )
    if excluded is not None:
        logits = tl.where(token_id == excluded[:, None], NEVER, logits)
    if ALL_GREEDY:
        winners = lowest_argmax(logits, token_id)
    else:
        kept = logits >= threshold[:, None]
        noise = token_arrivals(seed, position, draft_index, stream, winner)
        winners = token_winner(logits, kept, token_id, inverse_temperature, greedy, noise)
    if target.inverse_map is not None:
        if greedy:
            winners = lowest_drafted(
                target, adjust, requests, request, start, row, largest, NUM_DRAFTS
            )
    return winners


@triton.jit
def lowest_drafted(
    target, adjust, requests, request, start, row, largest, NUM_DRAFTS: tl.constexpr
):
    """The largest logit's token of a mapped row, the lowest draft id on a tie: [1] int32.

    Ties may lie in any blocks, whose order is that of target ids; `largest` is [1, num_blocks].
    """
    block = tl.arange(0, largest.shape[1])[None, :]
    highest = tl.max(largest, 1)
    # A draft id in the upper half and its target id in the lower.
    best = row.to(tl.int64) * 0 + 0x7FFFFFFFFFFFFFFF
    following = tl.min(tl.min(tl.where(largest == highest[:, None], block, 2147483647), 1), 0)
    while following < 2147483647:
        token_id = following * BLOCK + tl.arange(0, BLOCK)[None, :]
        logits = load_target(
            target, adjust, requests, request, start, row[:, None], token_id, NUM_DRAFTS
        )
        inside = token_id < target.vocab_size
        draft_id = tl.load(target.inverse_map + token_id, mask=inside, other=-1).to(tl.int64)
        tied = (logits == highest[:, None]) & (draft_id >= 0)
        pair = tl.where(tied, (draft_id << 32) + token_id, 0x7FFFFFFFFFFFFFFF)
        best = tl.minimum(best, tl.min(pair, 1))
        left = (largest == highest[:, None]) & (block > following)
        following = tl.min(tl.min(tl.where(left, block, 2147483647), 1), 0)
    return (best & 0x7FFFFFFF).to(tl.int32)
