"""The threshold of a row whose brackets were wrong, searched by one program in a few readings."""

import triton
import triton.language as tl

from ..logits import NEVER, adjusted_quarters, as_one, row_quarters
from ..records import blocks_of, kept_logits, padded
from ..statistics import block_statistics
from ..units import LOWEST_FINITE, as_key, floor_of, from_key, in_units, mass_of

TRIES = tl.constexpr(8)
"""Keys that are tried in one reading: 16 bits take five, 32 bits ten or eleven."""

TILE = tl.constexpr(4)


@triton.jit
def searched_row(call, row, recipe, row_max):
    """A row's threshold and the mass that it leaves, in units; its block masses become exact."""
    floor = floor_of(recipe, row_max)
    threshold = tl.maximum(floor, LOWEST_FINITE)
    if recipe.top_k > 0:
        threshold = tl.maximum(
            threshold,
            _search(call, row, recipe, row_max, threshold, recipe.top_k.to(tl.float64), True),
        )
    whole = _keep(call, row, recipe, row_max, threshold)
    if recipe.top_p < 1.0:
        needed = recipe.top_p.to(tl.float64) * whole.to(tl.float64)
        threshold = _search(call, row, recipe, row_max, threshold, needed, False)
        whole = _keep(call, row, recipe, row_max, threshold)
    return threshold, whole


@triton.jit
def _load(call, row, tile):
    block = tile * TILE + tl.arange(0, TILE)
    return adjusted_quarters(call, row, block, row_quarters(call, row, block))


@triton.jit
def _search(call, row, recipe, row_max, bound, needed, BY_RANK: tl.constexpr):
    """The largest logit that, with all above it, is or weighs so much, not below a bound."""
    KEY_SHIFT: tl.constexpr = call.variant.key_shift
    low = as_key(bound, KEY_SHIFT).to(tl.int64)
    high = as_key(row_max, KEY_SHIFT).to(tl.int64) + 1
    while high - low > 1:
        step = tl.maximum((high - low) // (TRIES + 1), 1)
        keys = tl.minimum(low + step * (tl.arange(0, TRIES) + 1), high)
        amounts = tl.zeros([TRIES], tl.int64)
        for tile in range(tl.cdiv(call.scratch.num_blocks, TILE)):
            logits = as_one(_load(call, row, tile))
            if BY_RANK:
                weights = (logits > NEVER).to(tl.int64)
            else:
                weights = mass_of(logits, row_max, recipe.inverse)
            reached = as_key(logits, KEY_SHIFT)[None, :] >= keys.to(tl.int32)[:, None]
            amounts += tl.sum(tl.where(reached, weights[None, :], 0), 1)
        enough = (amounts.to(tl.float64) >= needed) & (keys < high)
        above = tl.min(tl.where(enough, high, keys), 0)
        low = tl.max(tl.where(enough, keys, low), 0)
        high = above
    return tl.maximum(from_key(low, KEY_SHIFT), bound)


@triton.jit
def _keep(call, row, recipe, row_max, threshold):
    """The mass that reaches a threshold, in units; block masses become those of what does."""
    kept = row_max.to(tl.int64) * 0
    out = blocks_of(call, row.slot) + padded(call.scratch.num_blocks)
    for tile in range(tl.cdiv(call.scratch.num_blocks, TILE)):
        block = tile * TILE + tl.arange(0, TILE)
        quarters = kept_logits(_load(call, row, tile), threshold)
        largest, mass = block_statistics(quarters, recipe.inverse)
        kept += tl.sum(in_units(mass * tl.exp((largest - row_max) * recipe.inverse)), 0)
        inside = (block < call.scratch.num_blocks) & (row.slot == row.source)
        tl.store(out + block, mass, mask=inside)
    return kept
