"""Stage 4: draws a row's token by the two-level exponential race of `acceptor.core.race`.

The largest log W - log E is also the largest W / E, which takes no logarithm. Block masses that are
not exact are upper bounds: blocks are read in the order of their best possible scores, until no
other block can win.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .adjust import NOWHERE, next_flag
from .logits import BLOCK, LOG2_E, NEVER, draft_logits, target_logits
from .quarters import QUARTER, law_quarters, quarter_ids, quarters_max, quarters_sum
from .random_bits import BLOCK_LEVEL, RECOVER, TOKEN_LEVEL, arrivals
from .records import blocks_of, load_blocks, log_probs

AT_ONCE = tl.constexpr(4)
"""Blocks that are read at once: the best of each remainder."""

SLACK = tl.constexpr(1.0001)
"""More than rounding can change a sum of non-negative numbers."""


class Draw(NamedTuple):
    """The law that a draw uses, p or max(P p - q, 0), and its noise."""

    law: Any
    """The target row's law, see `records.Law`."""
    draft_law: Any
    subtracts: Any
    """Whether q is subtracted."""
    log_product: Any
    """log P; 0 if q is not subtracted."""
    rejected: Any
    """The rejected draft token, -1 for none; it must not be drawn unless q is subtracted."""
    greedy: Any
    """Whether to take the largest logit without a race."""
    noise: Any
    """See `random_bits.arrivals`."""


@triton.jit
def set_up(call, request, row, law, test, recovers, log_product):
    """Set up a draw from a row's law, or from what remains of it where it recovers."""
    rejected = tl.where(recovers, test.token, -1)
    draft_index = tl.where(recovers, row.place + 1, call.draft_index)
    stream = tl.where(recovers, RECOVER, call.stream)
    noise = request.seed, request.position + row.place, draft_index, stream
    subtracts, greedy = recovers & test.dense, request.greedy & (recovers == 0)
    return Draw(law, test.draft_law, subtracts, log_product, rejected, greedy, noise)


@triton.jit
def lowest_argmax(scores, candidates):
    """The best candidate; the lowest one on a tie."""
    return tl.min(tl.where(scores == tl.max(scores, 0), candidates, NOWHERE), 0)


@triton.jit
def drawn_token(call, row, draw):
    """Draw a token of a target's row: scalar int32, -1 if none has any mass."""
    law = draw.law
    largest, masses = load_blocks(call, blocks_of(call, row.slot))
    noise = arrivals(draw.noise, BLOCK_LEVEL, row.place * 0, call.variant.width)
    weights = masses * tl.exp2((largest - law.row_max) * (law.inverse * LOG2_E))
    scores = tl.where((masses > 0.0) & (largest >= law.threshold), weights / noise, -1.0)
    scores = tl.where(draw.greedy, largest, scores)
    block = tl.arange(0, call.variant.width)
    winner = lowest_argmax(scores, block)
    if ((draw.rejected >= 0) | (law.exact == 0)) & (draw.greedy == 0):
        scores *= tl.exp(draw.log_product - law.log_total)
        winner = _best_block(call, row, draw, scores, noise)
    found = winner < call.scratch.num_blocks
    winner = tl.where(found, winner, 0)
    token_id = winner * BLOCK + tl.arange(0, BLOCK)
    logits = target_logits(call, row, token_id)
    log_p, share = excess(call, row, draw, logits, token_id)
    noise = arrivals(draw.noise, TOKEN_LEVEL, winner * BLOCK, BLOCK)
    weights = tl.exp(log_p - tl.max(log_p, 0)) * share
    scores = tl.where(log_p > NEVER, weights / noise, NEVER)
    token = lowest_argmax(tl.where(draw.greedy, logits, scores), token_id)
    if call.target.inverse_map is not None and draw.greedy:
        token = _lowest_drafted(call, row, largest)
    return tl.where(found, token, -1)


@triton.jit
def certain_token(call, row, draw):
    """Draw a token of a target's row, even if rounding leaves nothing of max(P p - q, 0).

    Then draw from p without the draft token, or with it if nothing else has any mass.
    """
    token = row.place * 0 - 1
    attempt = row.place * 0
    while (token < 0) & (attempt < 3):
        subtracts = draw.subtracts & (attempt == 0)
        log_product = tl.where(attempt == 0, draw.log_product, 0.0)
        rejected = tl.where(attempt < 2, draw.rejected, -1)
        again = Draw(draw.law, draw.draft_law, subtracts, log_product, rejected, *draw[5:])
        token = drawn_token(call, row, again)
        attempt += 1
    return token


@triton.jit
def _best_block(call, row, draw, bounds, noise):
    """The block that wins the first race; `NOWHERE` if none has any mass.

    `bounds`, [width], are the best possible score of each block, negative for none; `noise`,
    [width], is the exponential that each block races against.
    """
    WIDTH: tl.constexpr = call.variant.width
    GROUPS: tl.constexpr = min(AT_ONCE, WIDTH)
    block = tl.reshape(tl.arange(0, WIDTH), [WIDTH // GROUPS, GROUPS])
    bounds = tl.reshape(bounds, [WIDTH // GROUPS, GROUPS])
    noise = tl.reshape(noise, [WIDTH // GROUPS, GROUPS])
    best = draw.log_product * 0.0
    winner = row.place * 0 + NOWHERE
    left = tl.max(tl.max(bounds, 1), 0)
    while left * SLACK > best:
        chosen = lowest_argmax(bounds, block)
        is_chosen = block == chosen[None, :]
        arrival = tl.sum(tl.where(is_chosen, noise, 0.0), 0)
        largest, mass = drawable_statistics(call, row, draw, chosen)
        score = tl.exp(largest) * mass / arrival
        highest_score = tl.max(score, 0)
        first = lowest_argmax(score, chosen)
        better = (highest_score > best) | ((highest_score == best) & (first < winner))
        winner = tl.where(better & (highest_score > 0.0), first, winner)
        best = tl.maximum(best, highest_score)
        bounds = tl.where(is_chosen, -1.0, bounds)
        left = tl.max(tl.max(bounds, 1), 0)
    return winner


@triton.jit
def drawable_statistics(call, row, draw, block):
    """For each block the log of the largest p that may be drawn, and the mass relative to it."""
    ids = quarter_ids(block)
    quarters = law_quarters(call, row, block)
    drawable = [excess(call, row, draw, quarters[n], ids + n * QUARTER) for n in (0, 1, 2, 3)]
    largest = quarters_max([of[0] for of in drawable])
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    weights = [tl.exp(of[0] - reference) * of[1] for of in drawable]
    return largest, quarters_sum(weights)


@triton.jit
def excess(call, row, draw, logits, ids):
    """Elementwise: log P p if the token may be drawn, else -inf; and 1 - q / (P p)."""
    log_p = log_probs(logits, draw.law) + draw.log_product
    share = tl.full(log_p.shape, 1.0, tl.float32)
    if call.draft.logits is not None:
        log_q = log_probs(draft_logits(call, row, ids, draw.subtracts), draw.draft_law)
        larger = log_p > log_q
        share = 1.0 - tl.exp(tl.where(larger, log_q - log_p, 0.0))
        log_p = tl.where(larger, log_p, NEVER)
    excluded = tl.where(draw.subtracts, -1, draw.rejected)
    return tl.where(ids == excluded, NEVER, log_p), share


@triton.jit
def _lowest_drafted(call, row, largest):
    """The token of a mapped row's largest logit, the lowest draft id on a tie: scalar int32.

    Ties may lie in any blocks, because blocks are in the order of target ids; `largest` is [width].
    """
    NONE: tl.constexpr = 0x7FFFFFFFFFFFFFFF
    highest = tl.max(largest, 0)
    following = next_flag(largest == highest, -1)
    # The draft id is in the upper half, its target id in the lower.
    best = row.place.to(tl.int64) * 0 + NONE
    while following < NOWHERE:
        token_id = following * BLOCK + tl.arange(0, BLOCK)
        logits = target_logits(call, row, token_id)
        inside = token_id < call.target.vocab_size
        draft_id = tl.load(call.target.inverse_map + token_id, mask=inside, other=-1).to(tl.int64)
        tied = tl.where(logits == highest, (draft_id << 32) + token_id, NONE)
        best = tl.minimum(best, tl.min(tied, 0))
        following = next_flag(largest == highest, following)
    return (best & 0x7FFFFFFF).to(tl.int32)
