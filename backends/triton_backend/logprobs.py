"""Stage 5, on request: logprobs of emitted tokens and of the most likely ones.

The most likely tokens are taken one after the other, each from the block with the largest maximum
left.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .adjust import NOWHERE
from .arguments import opened
from .draw import lowest_argmax
from .logits import BLOCK, NEVER, raw_logits, target_logits
from .records import Law, blocks_of, law_of, load_blocks, raw_blocks_of, summed
from .rows import entry_of, open_row


class View(NamedTuple):
    """A row as its logprobs see it."""

    row: Any
    law: Any
    processed: Any


@triton.jit
def logprobs_kernel(call):
    """One program per place of the output; all other stages are over."""
    opened(call, _write_logprobs, ())


@triton.jit
def _write_logprobs(call):
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    TOP_N: tl.constexpr = call.variant.top_logprobs
    place = tl.program_id(0).to(tl.int64)
    request = tl.program_id(0) // (NUM_DRAFTS + 1)
    row = open_row(call, request * call.variant.num_rows + tl.program_id(0) % (NUM_DRAFTS + 1))
    token = tl.load(call.outputs.token_ids + place).to(tl.int32)
    out = place * TOP_N
    if token < 0:
        ranks = tl.arange(0, triton.next_power_of_2(TOP_N + 1))
        tl.store(call.logprobs.emitted + place, NEVER)
        tl.store(call.logprobs.top_token_ids + out + ranks, -1, mask=ranks < TOP_N)
        tl.store(call.logprobs.top + out + ranks, NEVER, mask=ranks < TOP_N)
    else:
        view, blocks = _view(call, row, place)
        _token_id, logits = _block(call, view, token // BLOCK)
        token_id = token // BLOCK * BLOCK + tl.arange(0, BLOCK)
        logit = tl.max(tl.where(token_id == token, logits, NEVER), 0)
        tl.store(call.logprobs.emitted + place, _log_prob(view, logit))
        largest, _masses = load_blocks(call, blocks)
        largest = tl.where(largest >= view.law.threshold, largest, NEVER)
        last_logit = view.law.row_max * 0.0 + float("inf")
        last_id = token * 0 - 1
        for rank in range(TOP_N):
            last_logit, last_id, largest = _next(call, view, largest, last_logit, last_id)
            exists = last_id < call.target.vocab_size
            tl.store(
                call.logprobs.top_token_ids + out + rank, tl.where(exists, last_id, -1).to(tl.int64)
            )
            log_prob = tl.where(exists, _log_prob(view, last_logit), NEVER)
            tl.store(call.logprobs.top + out + rank, log_prob)


@triton.jit
def _view(call, row, place):
    """The row as its request wants it, and where its block maxima are."""
    processed = tl.load(call.logprobs.processed + entry_of(call, row.request)) != 0
    if processed:
        law, _usable = law_of(call, row)
        row_max = law.row_max
        log_total = law.log_total
        inverse = law.inverse
        threshold = law.threshold
        blocks = blocks_of(call, row.slot)
    else:
        blocks = raw_blocks_of(call, place)
        largest, masses = load_blocks(call, blocks)
        row_max, log_total = summed(largest, masses, 1.0)
        inverse = row_max * 0.0 + 1.0
        threshold = row_max * 0.0 + NEVER
    return View(row, Law(row_max, log_total, inverse, threshold, processed), processed), blocks


@triton.jit
def _log_prob(view, logit):
    return (logit - view.law.row_max) * view.law.inverse - view.law.log_total


@triton.jit
def _block(call, view, block):
    """Token ids of one block and its logits as the logprobs see them: [BLOCK] each."""
    token_id = block * BLOCK + tl.arange(0, BLOCK)
    if view.processed:
        logits = target_logits(call, view.row, token_id)
    else:
        logits = raw_logits(call, view.row, token_id)
    return token_id, tl.where(logits >= view.law.threshold, logits, NEVER)


@triton.jit
def _next(call, view, largest, last_logit, last_id):
    """The token behind another in the order of logprobs: its logit, its id, the maxima left.

    The order is falling logits, and rising ids among equals. Behind all that are possible come
    those of probability 0; an id of at least vocab_size is none.
    """
    if tl.max(largest, 0) > NEVER:
        block = tl.arange(0, call.variant.width)
        winner = lowest_argmax(largest, block)
        token_id, logits = _block(call, view, winner)
        last_logit, last_id = _behind(logits, token_id, last_logit, last_id)
        left, _left_id = _behind(logits, token_id, last_logit, last_id)
        largest = tl.where(block == winner, left, largest)
    else:
        last_id = tl.where(last_logit > NEVER, -1, last_id)
        last_logit = view.law.row_max * 0.0 + NEVER
        found = last_id * 0 + NOWHERE
        following = (last_id + 1) // BLOCK
        while (found == NOWHERE) & (following * BLOCK < call.target.vocab_size):
            token_id, logits = _block(call, view, following)
            possible = (logits == NEVER) & (token_id > last_id)
            possible = possible & (token_id < call.target.vocab_size)
            found = tl.min(tl.where(possible, token_id, NOWHERE), 0)
            following += 1
        last_id = tl.minimum(found, call.target.vocab_size)
    return last_logit, last_id, largest


@triton.jit
def _behind(logits, token_id, last_logit, last_id):
    """The first token of a block behind another: (logit, id)."""
    behind = (logits < last_logit) | ((logits == last_logit) & (token_id > last_id))
    best = tl.max(tl.where(behind, logits, NEVER), 0)
    tied = behind & (logits == best)
    return best, tl.min(tl.where(tied, token_id, NOWHERE), 0)
