"""Finds a row's threshold from its block statistics, if few blocks hold all kept tokens.

It reads the logits of these blocks. Other rows go to a queue, see `counted`.
"""

import triton
import triton.language as tl

from .. import records, units
from ..adjust import NOWHERE
from ..device import wait_for_stage_before
from ..logits import NEVER
from ..quarters import as_one, block_statistics, law_quarters
from ..queue import forget_rounds, open_first
from ..records import blocks_of, load_blocks, padded, store_law, summed, words_of
from ..rows import open_row, row_recipe
from .found import HALVES, NOTHING, start_round
from .touched import list_touched

FEW = tl.constexpr(4)
"""The most blocks that are read for a row: a nucleus lies in few. More would cost registers."""

MOST_LEVELS = tl.constexpr(16)
"""The most different logits that are tried: a small nucleus has fewer."""

MOST_EACH = tl.constexpr(12)
"""If top-k keeps fewer logits per block than this, its threshold is expected near block maxima."""


@triton.jit
def thresholds_stage(call):
    """One program per row."""
    row = open_row(call, tl.program_id(0))
    wait_for_stage_before(call)
    forget_rounds(call, row.slot)
    if call.scratch.touched is not None:
        list_touched(call, row)
    if row.exists:
        recipe = row_recipe(call, row)
        largest, masses = load_blocks(call, blocks_of(call, row.source))
        row_max, log_total = summed(largest, masses, recipe.inverse)
        tail = words_of(call, blocks_of(call, row.slot), tl.float32)
        threshold = row_max * 0.0 + NEVER
        cuts = (recipe.min_p > 0.0) | (recipe.top_k > 0) | (recipe.top_p < 1.0)
        usable = (log_total > NEVER) & (log_total < float("inf"))
        if usable & cuts & (recipe.greedy == 0):
            weights = units.in_units(masses * tl.exp((largest - row_max) * recipe.inverse))
            settled, threshold, kept, bound = settle(call, row, recipe, largest, weights, row_max)
            if settled:
                log_total = units.log_of_units(kept)
            else:
                _open(call, row, recipe, largest, row_max, tl.sum(weights, 0), bound)
        tl.store(tail + records.ROW_MAX, row_max)
        store_law(call, row, log_total, threshold, 1.0)


@triton.jit
def settle(call, row, recipe, largest, weights, row_max):
    """Read the few blocks that hold all kept tokens, if they are few.

    `largest` and `weights`, [width], are each block's largest logit and its mass in units. Returns
    whether they are few; if so the threshold, and the kept mass in units; and a lower bound of the
    threshold of min-p and top-k.
    """
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    # Whatever the rounding, min-p never cuts the maximum off.
    floor = tl.minimum(row_max + tl.log(recipe.min_p) / recipe.inverse, row_max)
    bound, least, most, before = _bound(recipe, largest, weights, row_max, floor, KEY_SHIFT)
    reached = (largest >= bound) & (largest > NEVER)
    settled = (bound > NEVER) & (tl.sum(reached.to(tl.int32), 0) <= FEW)
    threshold = floor
    kept = most * 0
    if settled:
        block = flagged(reached, call.scratch.num_blocks, FEW)
        quarters = law_quarters(call, row, block)
        logits = as_one(quarters)
        logits = tl.where(logits >= bound, logits, NEVER)
        keys = units.as_key(logits, KEY_SHIFT)
        masses = units.mass_of(logits, row_max, recipe.inverse)
        ones = (logits > NEVER).to(tl.int32)
        ranked = (recipe.top_k > 0) & (tl.sum(ones, 0) >= recipe.top_k)
        if ranked:
            key = units.highest_reaching(keys, ones, recipe.top_k.to(tl.float64))
            threshold = tl.maximum(units.from_key(key, KEY_SHIFT), floor)
        if recipe.top_p < 1.0:
            whole = tl.sum(tl.where(logits >= threshold, masses, 0), 0)
            # Either all that top-k and min-p keep is here, or its mass is known within bounds.
            known = ranked | (bound == floor)
            fewest = recipe.top_p.to(tl.float64) * tl.where(known, whole, least).to(tl.float64)
            enough = recipe.top_p.to(tl.float64) * tl.where(known, whole, most).to(tl.float64)
            key, _reached, settled = units.level_reaching(
                keys, fewest, enough, row_max, recipe.inverse, KEY_SHIFT, MOST_LEVELS
            )
            threshold = tl.maximum(units.from_key(key, KEY_SHIFT), threshold)
        kept = tl.sum(tl.where(logits >= threshold, masses, 0), 0)
        if settled & (row.slot == row.source):
            quarters = [tl.where(part >= threshold, part, NEVER) for part in quarters]
            _largest, mass = block_statistics(quarters, recipe.inverse)
            out = blocks_of(call, row.slot) + padded(call.scratch.num_blocks)
            tl.store(out + block, mass, mask=block < call.scratch.num_blocks)
    return settled, threshold, kept, before


@triton.jit
def _open(call, row, recipe, largest, row_max, total, bound):
    """Queue a row for counting; `bound` is a lower bound of its threshold."""
    bound = tl.maximum(bound, units.LOWEST_FINITE)
    least = units.as_key(bound, 0)
    # min-p keeps logits from the next representable one up.
    least += (units.from_key(least, 0) < bound).to(tl.int32)
    low = tl.maximum(units.as_key(_expected(recipe, largest, bound), 0), least)
    counted = tl.where((recipe.top_k == 0) & (recipe.top_p == 1.0), NOTHING, HALVES)
    search = recipe.top_k == 0, total, total * 0
    start_round(call, row, counted, low, units.as_key(row_max, 0), least, search)
    open_first(call, row.slot)


@triton.jit
def _expected(recipe, largest, bound):
    """A likely lower bound of top-k's threshold, if it keeps a few logits per block.

    Then not all blocks have a kept logit, and a draw need not look at logits below the bound.
    """
    there = largest > NEVER
    number = tl.sum(there.to(tl.int32), 0)
    expected = bound
    if (recipe.top_k > number) & (recipe.top_k < number * MOST_EACH):
        lowest = tl.min(tl.where(there, largest, float("inf")), 0)
        mean = tl.sum(tl.where(there, largest, 0.0), 0) / number.to(tl.float32)
        expected = tl.maximum(lowest - (mean - lowest) / 2, bound)
    return expected


@triton.jit
def _bound(recipe, largest, weights, row_max, floor, KEY_SHIFT: tl.constexpr):
    """Bounds of a row from its block statistics.

    Returns a lower bound of its threshold; the least and the most mass in units that top-p refers
    to; and a lower bound of the threshold of min-p and top-k alone.
    """
    keys = units.as_key(largest, KEY_SHIFT)
    ones = (largest > NEVER).to(tl.int32)
    own = units.mass_of(largest, row_max, recipe.inverse)
    bound = floor
    # Block maxima are different tokens, so the k-th largest bounds top-k's threshold from below.
    if (recipe.top_k > 0) & (tl.sum(ones, 0) >= recipe.top_k):
        kth = units.highest_reaching(keys, ones, recipe.top_k.to(tl.float64))
        bound = tl.maximum(units.from_key(kth, KEY_SHIFT), floor)
    before = bound
    reached = largest >= bound
    most = tl.sum(tl.where(reached, weights, 0), 0)
    least = most
    if recipe.top_p < 1.0:
        if (recipe.top_k > 0) | (floor > NEVER):
            # These are fewer tokens than top-k keeps.
            least = tl.sum(tl.where(largest > bound, own, 0), 0)
        enough = recipe.top_p.to(tl.float64) * most.to(tl.float64)
        fewest = recipe.top_p.to(tl.float64) * least.to(tl.float64)
        # Otherwise no FEW blocks hold enough.
        if FEW * tl.max(tl.where(reached, weights, 0), 0).to(tl.float64) >= fewest:
            key, reached_enough, _agreed = units.level_reaching(
                keys, enough, enough, row_max, recipe.inverse, KEY_SHIFT, FEW
            )
            if reached_enough:
                bound = tl.maximum(bound, units.from_key(key, KEY_SHIFT))
    return bound, least, most, before


@triton.jit
def flagged(flags, none, N: tl.constexpr):
    """The places of the first N set flags, in order: [N]; `none` after the last."""
    place = tl.arange(0, flags.shape[0])
    rank = tl.where(flags, tl.cumsum(flags.to(tl.int32), 0) - 1, NOWHERE)
    found = rank[None, :] == tl.arange(0, N)[:, None]
    return tl.min(tl.where(found, place[None, :], none), 1)
