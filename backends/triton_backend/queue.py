"""The queue of rows whose threshold is still open, and the tickets of programs that count them.

The first round holds the rows that block statistics leave open; later rounds hold those that are
still open.
"""

import triton
import triton.language as tl

from .records import OPEN_SLOT, blocks_of, words_of

NUM_OPEN, TICKETS, NUM_QUEUED, NUM_CLOSED, NUM_COUNTERS = map(tl.constexpr, range(5))
"""The counters; the first counts the rows in the first round."""

MOST_ROUNDS = tl.constexpr(128)
"""More than a row can need. Halves are counted at most twice. A number of logits is then found in
one of over 2,048 bins, so three rounds tell all 2**32 keys apart. Bounds of masses may exclude
fewer bins, but two rounds at least halve a bracket: 65 rounds. A last one weighs."""


@triton.jit
def open_first(call, slot):
    """Put a row on the list of the first round."""
    number = tl.atomic_add(call.scratch.counters + NUM_OPEN, 1, sem="relaxed")
    tl.store(words_of(call, blocks_of(call, number), tl.int32) + OPEN_SLOT, slot.to(tl.int32))


@triton.jit
def forget_rounds(call, slot):
    """Empty a row's share of the queue, before the first round."""
    place = tl.arange(0, MOST_ROUNDS)
    tl.store(call.scratch.queue + slot * MOST_ROUNDS + place, 0)


@triton.jit
def next_ticket(call):
    """Take the number of a part that no program has taken yet."""
    return tl.atomic_add(call.scratch.counters + TICKETS, 1, sem="relaxed")


@triton.jit
def queued_row(call, num_open, number):
    """Wait for the n-th row in the queue; -1 if there will be none."""
    slot = number * 0 - 1
    if number < num_open:
        slot = tl.load(words_of(call, blocks_of(call, number), tl.int32) + OPEN_SLOT)
    else:
        place = call.scratch.queue + (number - num_open)
        closed = number * 0
        # A full queue holds all rounds of all rows.
        if number - num_open < call.scratch.queue_length:
            # An atomic read happens once per program, so all its warps see the same value.
            while (slot < 0) & (closed < num_open):
                closed = tl.atomic_add(call.scratch.counters + NUM_CLOSED, 0, sem="acquire")
                slot = tl.atomic_add(place, 0, sem="acquire") - 1
    return slot


@triton.jit
def queue_again(call, slot):
    """Put a row at the end of the queue; all its programs have finished the previous round."""
    tl.debug_barrier()
    number = tl.atomic_add(call.scratch.counters + NUM_QUEUED, 1, sem="relaxed")
    tl.atomic_xchg(call.scratch.queue + number, slot.to(tl.int32) + 1, sem="release")


@triton.jit
def close_row(call):
    """Count one open row less."""
    tl.atomic_add(call.scratch.counters + NUM_CLOSED, 1, sem="relaxed")
