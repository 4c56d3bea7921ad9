"""Stage 5, on request: logprobs of emitted tokens and of the most likely ones.

The most likely tokens are taken one after the other, each from the block with the largest remaining
maximum.
"""

import triton
import triton.language as tl

from .adjust import NOWHERE
from .draw import lowest_argmax
from .logits import BLOCK, NEVER, raw_logits, target_logits
from .records import Law, blocks_of, law_of, load_blocks, log_probs, record_words, summed
from .rows import entry_of, open_row


@triton.jit
def logprobs_stage(call):
    """One program per place of the output; all other stages have ended."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    TOP_N: tl.constexpr = call.variant.top_logprobs
    place = tl.program_id(0).to(tl.int64)
    request = tl.program_id(0) // (NUM_DRAFTS + 1)
    row = open_row(call, request * call.variant.num_rows + tl.program_id(0) % (NUM_DRAFTS + 1))
    token = tl.load(call.outputs.token_ids + place).to(tl.int32)
    out = place * TOP_N
    if token < 0:
        ranks = tl.arange(0, triton.next_power_of_2(TOP_N + 1))
        tl.store(call.outputs.emitted + place, NEVER)
        tl.store(call.outputs.top_token_ids + out + ranks, -1, mask=ranks < TOP_N)
        tl.store(call.outputs.top + out + ranks, NEVER, mask=ranks < TOP_N)
    else:
        law, processed, blocks = _law_of(call, row, place)
        token_id, logits = _block(call, row, law, processed, token // BLOCK)
        logit = tl.max(tl.where(token_id == token, logits, NEVER), 0)
        tl.store(call.outputs.emitted + place, log_probs(logit, law))
        largest, _masses = load_blocks(call, blocks)
        largest = tl.where(largest >= law.threshold, largest, NEVER)
        block = tl.arange(0, call.variant.width)
        is_left = block * BLOCK < call.target.vocab_size
        last_logit = law.row_max * 0.0 + float("inf")
        last_id = token * 0 - 1
        for rank in range(TOP_N):
            left_block = tl.where(is_left, block, NOWHERE)
            winner = lowest_argmax(tl.where(is_left, largest, NEVER), left_block)
            token_id, logits = _block(call, row, law, processed, winner)
            last_logit, last_id = _behind(call, logits, token_id, last_logit, last_id)
            left, left_id = _behind(call, logits, token_id, last_logit, last_id)
            largest = tl.where(block == winner, left, largest)
            is_left = is_left & ((block != winner) | (left_id < NOWHERE))
            tl.store(call.outputs.top_token_ids + out + rank, last_id.to(tl.int64))
            tl.store(call.outputs.top + out + rank, log_probs(last_logit, law))


@triton.jit
def _law_of(call, row, place):
    """A row's law in its request's mode, whether that is processed, and its block maxima."""
    processed = tl.load(call.entries.processed + entry_of(call, row.request)) != 0
    if processed:
        law, _usable = law_of(call, row)
        blocks = blocks_of(call, row.slot)
    else:
        blocks = call.scratch.raw + place * record_words(call)
        largest, masses = load_blocks(call, blocks)
        row_max, log_total = summed(largest, masses, 1.0)
        zero = row_max * 0.0
        law = Law(row_max, log_total, zero + 1.0, zero + NEVER, processed)
    return law, processed, blocks


@triton.jit
def _block(call, row, law, processed, block):
    """Token ids of one block, and its logits in the request's mode: [BLOCK] each."""
    token_id = block * BLOCK + tl.arange(0, BLOCK)
    if processed:
        logits = target_logits(call, row, token_id)
    else:
        logits = raw_logits(call, row, token_id)
    return token_id, tl.where(logits >= law.threshold, logits, NEVER)


@triton.jit
def _behind(call, logits, token_id, last_logit, last_id):
    """The next token of a block after another one in the order of logprobs: its logit and its id.

    The order is by falling logits, then by rising ids, also for tokens of probability 0. If there
    is no next token, the id is `NOWHERE`.
    """
    behind = (logits < last_logit) | ((logits == last_logit) & (token_id > last_id))
    behind = behind & (token_id < call.target.vocab_size)
    best = tl.max(tl.where(behind, logits, NEVER), 0)
    return best, tl.min(tl.where(behind & (logits == best), token_id, NOWHERE), 0)
