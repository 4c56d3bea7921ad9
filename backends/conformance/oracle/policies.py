"""Every policy once more, from the text of the contract: its verdicts and its residuals.

It reads the parameters of `acceptor.core.policies` and calls none of their methods.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from attrs import field, frozen

from ....core.errors import UnavailableError
from ....core.policies import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Strict,
    Synthetic,
    Typical,
)
from .filters import Flags
from .law import Law
from .noise import Floats
from .residual import Scale, log_difference, residual
from .verdict import (
    Possible,
    Verdict,
    below,
    certainly,
    greatest_log_ratio,
    least_log_ratio,
    log_ratio,
)
from .view import RequestView

SMALLEST_FLOAT32 = 2.0**-126
"""Below this a probability may be 0 in a backend."""


@frozen
class Accepted:
    """Which tokens would survive.

    Attributes:
        exact: [V], in float64.
        doubted: computes for which of them a relative change may answer otherwise.
    """

    exact: Flags = field(eq=False)
    doubted: Callable[[float], Flags] = field(eq=False)


def entropy(law: Law) -> float:
    """In nats."""
    log_p = np.where(law.log_p > -np.inf, law.log_p, 0.0)
    return -float((np.exp(law.log_p) * log_p).sum())


def entropy_width(law: Law, tolerance: float) -> float:
    """How far it may move; a token in doubt is worth about its own share of it."""
    width = 2 * tolerance * max(1.0, entropy(law))
    doubted = law.doubted_mass
    return width + (doubted * (2 + abs(math.log(doubted)) + entropy(law)) if doubted else 0.0)


def typical_tokens(law: Law, policy: Typical) -> Accepted:
    """p > min(epsilon, delta exp(-H))."""

    def edge(shift: float) -> float:
        return min(policy.epsilon, policy.delta * math.exp(shift - entropy(law)))

    def doubted(tolerance: float) -> Flags:
        bounds, width = law.bounds(tolerance), entropy_width(law, tolerance)
        low, high = edge(-width), max(edge(width), SMALLEST_FLOAT32)
        return (bounds.high > _log(low)) & (bounds.low <= _log(high))

    return Accepted(law.log_p > _log(edge(0.0)), doubted)


def relaxed_tokens(law: Law, policy: RelaxedTopN) -> Accepted:
    """The n most likely, ties included, that are at most delta less likely than the first."""
    p = np.exp(law.log_p)
    nth = np.sort(law.log_p)[::-1][min(policy.top_n, len(p)) - 1]
    edge = p.max() - policy.delta

    def doubted(tolerance: float) -> Flags:
        bounds = law.bounds(tolerance)
        width = np.exp(bounds.high) - np.exp(bounds.low)
        around_nth = abs(p - np.exp(nth)) <= width
        if not (around_nth & (law.log_p != nth)).any():
            around_nth[:] = False
        around_edge = abs(p - edge) <= tolerance * p.max() + width
        around_edge &= ~((policy.delta == 0) & (p == p.max()))
        tiny = (law.log_p > -np.inf) & (p < SMALLEST_FLOAT32)
        doubted: Flags = around_nth | around_edge | tiny
        return doubted

    return Accepted((law.log_p >= nth) & (p >= edge) & (law.log_p > -np.inf), doubted)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def total_variation(p: Law, q: Law, accepted: Flags) -> float:
    """Between p and the law q a + p (1 - sum(q a))."""
    survived = np.exp(q.log_p) * accepted
    return float(abs(survived - np.exp(p.log_p) * survived.sum()).sum() / 2)


def block_verdict(view: RequestView, row: int) -> Verdict:
    """Whether u < h for draft token row + 1."""
    count = row + 1

    def bounds(tolerance: float) -> tuple[float, float]:
        least, most = _product_bounds(view, count, tolerance)
        low = _log_h(view, count, least, partial(_least_left, tolerance=tolerance))
        return low, _log_h(view, count, most, partial(_most_left, tolerance=tolerance))

    exact = _log_h(view, count, _product(view, count, log_ratio), _left)
    return below(math.log(view.uniforms[row]), exact, bounds)


def scaled_residual(view: RequestView, row: int) -> Law:
    """max(P p - q, 0) after the first `row` draft tokens were accepted."""
    scale = Scale(_product(view, row, log_ratio), partial(_product_bounds, view, row))
    return residual(view.target_laws[row], view.draft_laws[row], view.drafts[row], scale)


def _product_bounds(view: RequestView, count: int, tolerance: float) -> tuple[float, float]:
    return (
        _product(view, count, partial(least_log_ratio, tolerance=tolerance)),
        _product(view, count, partial(greatest_log_ratio, tolerance=tolerance)),
    )


def _product(view: RequestView, count: int, ratio_of: Callable[[Law, Law, int], float]) -> float:
    """log P_count."""
    product = 0.0
    for row, drafted in enumerate(view.drafts[:count]):
        if product == -math.inf:
            break
        ratio = ratio_of(view.target_laws[row], view.draft_laws[row], drafted)
        product = min(0.0, product + ratio)
    return product


def _log_h(
    view: RequestView, count: int, log_product: float, left_of: Callable[[Law, Law, float], Floats]
) -> float:
    if count == len(view.drafts):
        return log_product
    left = left_of(view.target_laws[count], view.draft_laws[count], log_product)
    mass, rest = float(np.exp(left).sum()), -math.expm1(log_product)
    if mass == 0:
        return 0.0 if rest == 0 else -math.inf
    return math.log(mass) - math.log(mass + rest)


def _left(p: Law, q: Law, log_product: float) -> Floats:
    return log_difference(log_product + p.log_p, q.log_p)


def _least_left(p: Law, q: Law, log_product: float, tolerance: float) -> Floats:
    return log_difference(log_product + p.bounds(tolerance).low, q.bounds(tolerance).high)


def _most_left(p: Law, q: Law, log_product: float, tolerance: float) -> Floats:
    return log_difference(log_product + p.bounds(tolerance).high, q.bounds(tolerance).low)


def verdict_of(view: RequestView, policy: Policy, row: int) -> Verdict:
    """Whether the policy accepts draft token row + 1, by its own test alone."""
    match policy:
        case Strict():
            return matches(view, row)
        case Probabilistic():
            return _ratio_verdict(view, row)
        case Block():
            return block_verdict(view, row)
        case Synthetic():
            return _synthetic_verdict(view, policy, row)
        case Typical() | RelaxedTopN():
            return _membership(accepted_tokens(view, policy, row), view.drafts[row])
        case Fly():
            return matches(view, row) | forgiven(view, policy, row)
    raise UnavailableError(f"policy: expected one that the oracle knows, got {policy!r}")


def residual_of(view: RequestView, policy: Policy, row: int) -> Law | None:
    """What a rejection at the row draws from; None if the target's own sample stands."""
    match policy:
        case Probabilistic():
            return residual(view.target_laws[row], view.draft_laws[row], view.drafts[row])
        case Block():
            return scaled_residual(view, row)
    return None


def uses_draft_law(policy: Policy) -> bool:
    """Whether the policy looks at draft logits, so that bad ones stop a request."""
    return not isinstance(policy, Strict | Synthetic)


def takes_last_success(policy: Policy) -> bool:
    """Whether a later success redeems an earlier failure."""
    return isinstance(policy, Block)


def accepted_tokens(view: RequestView, policy: Typical | RelaxedTopN, row: int) -> Accepted:
    """Which tokens would survive at a row."""
    law = view.target_laws[row]
    if isinstance(policy, Typical):
        return typical_tokens(law, policy)
    return relaxed_tokens(law, policy)


def matches(view: RequestView, row: int) -> Verdict:
    """Whether the draft token is the target's own sample."""
    sample, drafted = view.samples[row], view.drafts[row]
    equal = sample.token_id == drafted

    def possible(tolerance: float) -> Possible:
        may_differ = not equal or not sample.is_certain(tolerance)
        return Possible(equal or sample.could_be(drafted, tolerance), may_differ)

    return Verdict(equal, possible)


def forgiven(view: RequestView, policy: Fly, row: int) -> Verdict:
    """Whether the target is undecided at the row and the window after it matches."""
    law, edge = view.target_laws[row], policy.min_entropy * math.log(view.inputs.vocab_size)
    nats = entropy(law)

    def possible(tolerance: float) -> Possible:
        width = entropy_width(law, tolerance)
        return Possible(nats + width >= edge, nats - width < edge)

    undecided = Verdict(nats >= edge, possible)
    for ahead in range(row + 1, row + 1 + policy.window):
        exists = ahead < len(view.drafts)
        undecided &= matches(view, ahead) if exists else certainly(accepted=False)
    return undecided


def _ratio_verdict(view: RequestView, row: int) -> Verdict:
    asked = (view.target_laws[row], view.draft_laws[row], view.drafts[row])

    def bounds(tolerance: float) -> tuple[float, float]:
        return least_log_ratio(*asked, tolerance), greatest_log_ratio(*asked, tolerance)

    return below(math.log(view.uniforms[row]), log_ratio(*asked), bounds)


def _synthetic_verdict(view: RequestView, policy: Synthetic, row: int) -> Verdict:
    before, rate = (1.0, *policy.rates)[row : row + 2] if row < len(policy.rates) else (1.0, 0.0)
    if rate in (0.0, before):
        return certainly(rate > 0)
    threshold = math.log(rate) - math.log(before)

    def bounds(tolerance: float) -> tuple[float, float]:
        return threshold - tolerance / 2, threshold + tolerance / 2

    return below(math.log(view.uniforms[row]), threshold, bounds)


def _membership(accepted: Accepted, drafted: int) -> Verdict:
    exact = bool(accepted.exact[drafted])

    def possible(tolerance: float) -> Possible:
        doubted = bool(accepted.doubted(tolerance)[drafted])
        return Possible(exact or doubted, not exact or doubted)

    return Verdict(exact, possible)
