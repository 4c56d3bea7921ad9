"""All rows of a request that may be drawn from, looked at before it is known which one is.

This module refuses to decide which.
"""

import triton
import triton.language as tl

from .race import block_arrivals
from .random_bits import RECOVER, TARGET
from .recipe import LOG2_E
from .rows import load_statistics


@triton.jit
def row_of(values, row):
    """One row of many: [1, N]."""
    rows = tl.arange(0, values.shape[0])[:, None]
    return tl.sum(tl.where(rows == row, values, 0.0), 0)[None, :]


@triton.jit
def statistics_of_rows(
    scratch,
    request,
    num_drafts,
    num_rows,
    NUM_DRAFTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Block statistics of all rows that may be drawn from, before it is known which one is."""
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    return load_statistics(
        scratch.statistics + (request * ROWS + row).to(tl.int64) * 2 * scratch.num_blocks,
        scratch.num_blocks,
        scratch.num_blocks,
        (row <= num_drafts) & (row < num_rows),
        True,
        WIDTH,
    )


@triton.jit
def arrivals_of_rows(requests, request, num_drafts, NUM_DRAFTS: tl.constexpr, WIDTH: tl.constexpr):
    """What their blocks race against, for recovered tokens and for the bonus token."""
    row = tl.arange(0, triton.next_power_of_2(NUM_DRAFTS + 1))
    seed = tl.load(requests.seeds + request)
    position = tl.load(requests.positions + request).to(tl.int32) + row
    tested = row < num_drafts
    index = tl.where(tested, row + 1, 0)
    stream = tl.where(tested, RECOVER, TARGET)
    return block_arrivals(seed, position, index, stream[:, None], WIDTH)


@triton.jit
def block_scores(largest, masses, law, arrivals):
    """What blocks of p score, relative to the row's largest logit; -1 where p is 0."""
    row_max, _log_total, inverse_temperature, _threshold = law
    weights = masses * tl.exp2((largest - row_max) * (inverse_temperature * LOG2_E))
    return tl.where(masses > 0.0, weights / arrivals, -1.0)
