"""What policies that test p against q recover from: max(P p - q, 0), elementwise and per block.

This module refuses to decide and to draw.
"""

import triton
import triton.language as tl

from .quarters import quarters_max, quarters_sum
from .race import NEVER
from .verdicts import at_row


@triton.jit
def residual_statistics(target_logits, target_law, log_product, draft_logits, draft_law):
    """Per block, the largest log P p that exceeds log q, and the mass of P p - q relative to it.

    Args:
        target_logits, draft_logits: quarters of the same blocks.
        target_law, draft_law: see `log_probs`.
        log_product: log P; None for 0.
    """
    target_0, target_1, target_2, target_3 = target_logits
    draft_0, draft_1, draft_2, draft_3 = draft_logits
    log_p_0, share_0 = excess(target_0, target_law, log_product, draft_0, draft_law)
    log_p_1, share_1 = excess(target_1, target_law, log_product, draft_1, draft_law)
    log_p_2, share_2 = excess(target_2, target_law, log_product, draft_2, draft_law)
    log_p_3, share_3 = excess(target_3, target_law, log_product, draft_3, draft_law)
    largest = quarters_max((log_p_0, log_p_1, log_p_2, log_p_3))
    reference = tl.where(largest == NEVER, 0.0, largest)[:, None]
    weights = (
        tl.exp(log_p_0 - reference) * share_0,
        tl.exp(log_p_1 - reference) * share_1,
        tl.exp(log_p_2 - reference) * share_2,
        tl.exp(log_p_3 - reference) * share_3,
    )
    return largest, quarters_sum(weights)


@triton.jit
def excess(target_logits, target_law, log_product, draft_logits, draft_law):
    """Elementwise, log P p where it exceeds log q, else -inf, and 1 - q / (P p) there."""
    log_p = log_probs(target_logits, target_law)
    if log_product is not None:
        log_p += log_product
    log_q = log_probs(draft_logits, draft_law)
    larger = log_p > log_q
    share = 1.0 - tl.exp(tl.where(larger, log_q - log_p, 0.0))
    return tl.where(larger, log_p, NEVER), share


@triton.jit
def log_probs(logits, law):
    """Log-probabilities of a filtered row, elementwise; a law is what `law_at` returns."""
    row_max, log_total, inverse_temperature, threshold = law
    log_prob = (logits - row_max) * inverse_temperature - log_total
    return tl.where(logits >= threshold, log_prob, NEVER)


@triton.jit
def law_at(laws, row, chosen, inverse_temperature):
    """What turns one row's logits into log-probabilities: four scalars."""
    row_max = at_row(laws.row_max, row, chosen)
    log_total = at_row(laws.log_total, row, chosen)
    return row_max, log_total, inverse_temperature, at_row(laws.threshold, row, chosen)
