"""The workspace's record of each row, and its decisions.

A record holds block maxima, block masses, then the words below. A decision is four words.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .logits import NEVER
from .rows import row_recipe

ROW_MAX, LOG_TOTAL, THRESHOLD, EXACT = map(tl.constexpr, range(4))
"""The largest logit; the log of the kept mass, relative to that of the largest logit; the smallest
kept logit; and 1 if block masses are those of kept tokens, else they are upper bounds of those."""

LOW, HIGH, LEAST, BY_MASS = map(tl.constexpr, range(4, 8))
"""Of rows whose threshold is open: the ends of a bracket of keys; a key that is a lower bound of
the threshold; and whether the bracket is for top-p."""
ABOVE_NUMBER, COUNTED, ODD_BITS, ARRIVALS = map(tl.constexpr, range(8, 12))
"""The same: how many logits are above the bracket; what is counted, see `thresholds.found`; not 0
if logits have lower halves whose mass is not known; how many programs have finished this round."""
MASS, WHOLE = map(tl.constexpr, range(6, 8))
"""The mass of all logits from the bracket on, and the mass that top-p refers to: int64, in words of
8 bytes."""
OPEN_SLOT = tl.constexpr(16)
"""In the n-th record: the n-th row in the queue of open ones."""
GUESS_LOW, GUESS_HIGH = map(tl.constexpr, range(17, 19))
"""Keys between which top-p's threshold is likely to be, once top-k's is known."""
RECORD_TAIL = tl.constexpr(20)
"""The words after the blocks of a record."""

VERDICT, TOKEN, RATIO, LOG_P, DECISION = map(tl.constexpr, range(5))
"""The words of a decision, and their number. RATIO is log p - log q of a draft token; under lossy
policies the total variation. LOG_P is log p of a draft token; under FLy 1 if the target is
undecided, 2 if its mask still forbids the draft token."""


class Law(NamedTuple):
    """The numbers that turn a row's logits into log-probabilities."""

    row_max: Any
    log_total: Any
    inverse: Any
    """1 / temperature."""
    threshold: Any
    exact: Any
    """Whether block masses are those of kept tokens."""


@triton.jit
def padded(num_blocks):
    """The words that block maxima take in a record; block masses take as many."""
    return tl.cdiv(num_blocks, 4) * 4


@triton.jit
def blocks_of(call, slot):
    """The address of a row's block maxima."""
    return call.scratch.records + slot.to(tl.int64) * record_words(call)


@triton.jit
def record_words(call):
    """The words of a record."""
    return 2 * padded(call.scratch.num_blocks) + RECORD_TAIL


@triton.jit
def words_of(call, blocks, KIND: tl.constexpr):
    """The address of the words after a record's blocks, as words of a dtype."""
    words = blocks + 2 * padded(call.scratch.num_blocks)
    return words.to(tl.pointer_type(KIND), bitcast=True)


@triton.jit
def load_blocks(call, blocks):
    """Load block maxima and masses of a row: two [width] float32."""
    block = tl.arange(0, call.variant.width)
    inside = block < call.scratch.num_blocks
    largest = tl.load(blocks + block, mask=inside, other=NEVER)
    masses = tl.load(blocks + padded(call.scratch.num_blocks) + block, mask=inside, other=0.0)
    return largest, masses


@triton.jit
def summed(largest, masses, inverse):
    """A row's largest logit, and the log of the sum of exp((logit - largest) / temperature).

    NaN, infinite and missing logits make the latter NaN or infinite.
    """
    row_max = tl.max(largest, 0)
    reference = tl.where(row_max == NEVER, 0.0, row_max)
    weights = masses * tl.exp((largest - reference) * inverse)
    # Rounded from double precision, the sum does not depend on its order.
    return row_max, tl.log(tl.sum(weights.to(tl.float64), 0).to(tl.float32))


@triton.jit
def law_of(call, row):
    """A row's law, and whether it has one."""
    blocks = blocks_of(call, row.slot)
    inverse = row_recipe(call, row).inverse
    if call.variant.filters:
        tail = words_of(call, blocks, tl.float32)
        row_max = tl.load(tail + ROW_MAX)
        log_total = tl.load(tail + LOG_TOTAL)
        threshold = tl.load(tail + THRESHOLD)
        exact = tl.load(tail + EXACT) != 0.0
    else:
        largest, masses = load_blocks(call, blocks)
        row_max, log_total = summed(largest, masses, inverse)
        threshold = inverse * 0.0 + NEVER
        exact = row.place >= 0
    usable = (log_total > NEVER) & (log_total < float("inf"))
    return Law(row_max, log_total, inverse, threshold, exact), usable


@triton.jit
def store_law(call, row, log_total, threshold, exact):
    """Store the law that a row's filters leave."""
    tail = words_of(call, blocks_of(call, row.slot), tl.float32)
    tl.store(tail + LOG_TOTAL, log_total)
    tl.store(tail + THRESHOLD, threshold)
    tl.store(tail + EXACT, exact)


@triton.jit
def log_probs(logits, law):
    """Log-probabilities of a filtered row, elementwise."""
    log_prob = (logits - law.row_max) * law.inverse - law.log_total
    return tl.where(logits >= law.threshold, log_prob, NEVER)


@triton.jit
def decision_of(call, request, place):
    """The address of the decision on a target's row, for its int32 and for its float32."""
    words = (request.to(tl.int64) * (call.variant.num_drafts + 1) + place) * DECISION
    words = call.scratch.decisions + words
    return words, words.to(tl.pointer_type(tl.float32), bitcast=True)


@triton.jit
def store_decision(call, row, kind, token, ratio, log_p):
    """Store the decision on a target's row."""
    words, numbers = decision_of(call, row.request, row.place)
    tl.store(words + VERDICT, kind)
    tl.store(words + TOKEN, token)
    tl.store(numbers + RATIO, ratio)
    tl.store(numbers + LOG_P, log_p)


@triton.jit
def load_decisions(call, request, row):
    """Load the decisions on a request's rows: kinds, tokens and both numbers, each [rows]."""
    words, numbers = decision_of(call, request, row)
    there = row <= call.variant.num_drafts
    return (
        tl.load(words + VERDICT, mask=there, other=0),
        tl.load(words + TOKEN, mask=there, other=-1),
        tl.load(numbers + RATIO, mask=there, other=0.0),
        tl.load(numbers + LOG_P, mask=there, other=0.0),
    )
