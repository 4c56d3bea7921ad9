"""Stage 3: whether a row accepts its draft token; every row is judged alone."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .logits import NEVER, draft_logits, is_allowed, target_logits
from .records import THRESHOLD, blocks_of, law_of, log_probs, words_of
from .rows import drafted_token, open_row
from .units import UNITS

ENTROPY, SURVIVED, MOVED, NUM_SUMS = map(tl.constexpr, range(4))


class Tested(NamedTuple):
    """A row's draft token in both laws, see `test_draft`."""

    token: Any
    logit: Any
    """The target's, -inf if the row tests no draft token."""
    allowed: Any
    log_p: Any
    log_ratio: Any
    """log p - log q: -inf where p is 0, +inf where only q is."""
    dense: Any
    """Whether q comes from draft logits; else it is one-hot."""
    usable: Any
    """Whether q is known."""
    draft_law: Any
    """Any law if q does not come from draft logits."""


@triton.jit
def open_draft(call, row, tested):
    """Load a row's draft token, its logits in target and draft, and whether the mask allows it."""
    token = drafted_token(call, row.request, row.place, tested)
    ids = tl.where(tested, token, call.target.vocab_size) + tl.zeros([1], tl.int32)
    logit = tl.max(target_logits(call, row, ids), 0)
    draft_logit = logit
    if call.draft.logits is not None:
        draft_logit = tl.max(draft_logits(call, row, ids, tested), 0)
    allowed = row.place >= 0
    if call.masks.words is not None:
        allowed = tl.max(is_allowed(call, row, ids).to(tl.int32), 0) != 0
    return token, logit, draft_logit, allowed


@triton.jit
def test_draft(call, row, law, drafted, tested):
    """Look what `open_draft` loaded up in both laws; a row that tests none has log p of -inf."""
    token, logit, draft_logit, allowed = drafted
    log_p = log_probs(logit, law)
    dense = row.place < 0
    usable = row.place >= 0
    draft_law = law
    if call.draft.logits is not None and tested:
        draft_row = open_row(call, row.slot.to(tl.int32) + call.variant.num_drafts + 1)
        if draft_row.exists:
            found, usable = law_of(call, draft_row)
            if usable:
                dense = draft_row.exists
                draft_law = found
    log_q = tl.where(dense, log_probs(draft_logit, draft_law), 0.0)
    log_ratio = tl.where(log_p > NEVER, log_p - log_q, NEVER)
    return Tested(token, logit, allowed, log_p, log_ratio, dense, usable, draft_law)


@triton.jit
def sums_of(call, request, place):
    """The address of the sums of a row that tests a draft token."""
    row = request.to(tl.int64) * call.variant.num_drafts + place
    return call.scratch.sums + row * NUM_SUMS


@triton.jit
def load_sum(call, request, place, WHAT: tl.constexpr):
    """Load one of the sums of rows that test draft tokens, shaped like place; 0 of other rows."""
    tested = place < call.variant.num_drafts
    units = tl.load(sums_of(call, request, place) + WHAT, mask=tested, other=0)
    return (units.to(tl.float64) / UNITS).to(tl.float32)


@triton.jit
def bar_of(call, row, law):
    """(log-probability, logit) that tokens must reach under a lossy policy; FLy asks for none."""
    least = law.row_max * 0.0 + NEVER
    ranked = least
    if call.variant.policy == "typical":
        nats = load_sum(call, row.request, row.place, ENTROPY)
        strictness = tl.log(call.leniency.strictness + nats * 0.0)
        least = tl.minimum(strictness, tl.log(call.leniency.delta + nats * 0.0) - nats)
    if call.variant.policy == "relaxed":
        # The rows after the draft's hold the threshold that top_n has become.
        second = row.slot + (call.variant.num_rows - call.variant.num_drafts)
        ranked = tl.load(words_of(call, blocks_of(call, second), tl.float32) + THRESHOLD)
        share = 1.0 - call.leniency.delta * tl.exp(law.log_total)
        least = tl.minimum(tl.log(tl.maximum(share, 0.0)), 0.0) - law.log_total
    return least, ranked


@triton.jit
def accepts(call, logits, law, bar):
    """Whether a lossy policy would accept tokens of these logits."""
    least, ranked = bar
    log_p = log_probs(logits, law)
    if call.variant.policy == "typical":
        accepted = log_p > least
    elif call.variant.policy == "relaxed":
        # Logits rank tokens: they may differ where log-probabilities tie.
        accepted = (log_p >= least) & (log_p > NEVER) & (logits >= ranked)
    else:
        accepted = log_p >= least
    return accepted


@triton.jit
def leniency_of(call, row, law, test):
    """Whether a row's draft token survives, whether FLy may forgive it, and the total variation.

    Under FLy other code decides survival, and the variation is what forgiving causes.
    """
    undecided = law.row_max * 0.0
    if call.variant.policy == "fly":
        nats = load_sum(call, row.request, row.place, ENTROPY)
        undecided = tl.where(nats >= call.leniency.strictness, 1.0, 0.0)
    accepted = accepts(call, test.logit, law, bar_of(call, row, law))
    caused = tl.where(accepted, tl.maximum(1.0 - tl.exp(test.log_p), 0.0), 0.0)
    if call.draft.logits is not None and test.dense:
        caused = load_sum(call, row.request, row.place, MOVED)
    return accepted, undecided, caused
