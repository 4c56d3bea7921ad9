"""Every policy a second time, written from the text of the contract: one row of `RULES` each.

It reads the parameters of policies in `acceptor.core.policies` and calls none of their methods. The
recovered token is drawn from the residual max(scale p - q, 0); block verification also uses its
mass to test each draft token together with those before it.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import frozen

from ....core import Block, Fly, Policy, Probabilistic, RelaxedTopN, Strict, Synthetic, Typical
from ....core.errors import UnavailableError
from .filters import Floats, Possible
from .law import Bounds, Interval, Law, log_ratio
from .view import RequestView

SMALLEST_FLOAT32 = 2.0**-126
"""A backend may round a probability below this to 0."""


def _residual(
    view: RequestView, row: int, scale: Callable[[float], Interval] = lambda _: (0.0, 0.0)
) -> Law:
    """The law that a rejection at a row draws from, not normalised; the scale is a logarithm.

    If no mass is left, it is p without the rejected token; if that has no mass either, p itself.
    """
    p, q = view.target_laws[row], view.draft_laws[row]

    @cache
    def bounds(tolerance: float) -> Bounds:
        low, high = _difference(p, q, scale(tolerance), tolerance)
        if low.max() > -np.inf:
            return low, high
        _, instead = p.bounds(tolerance)
        others = np.where(np.arange(len(instead)) == view.drafts[row], -np.inf, instead)
        instead = others if others.max() > -np.inf else instead
        # At tolerance 0 nothing is left, and only this applies.
        return (low, np.maximum(high, instead)) if tolerance else (instead, instead)

    return Law(bounds)


def _difference(p: Law, q: Law, scale: Interval, tolerance: float) -> Bounds:
    """log(scale p - q), -inf where the difference is not positive."""
    (p_low, p_high), (q_low, q_high) = p.bounds(tolerance), q.bounds(tolerance)
    least, most = scale
    return _log_difference(least + p_low, q_high), _log_difference(most + p_high, q_low)


def _log_difference(larger: Floats, smaller: Floats) -> Floats:
    positive = larger > smaller
    gap = np.where(positive, smaller, -np.inf) - np.where(positive, larger, 0.0)
    share = -np.expm1(gap)
    return np.where(positive, larger + np.log(np.where(positive, share, 1.0)), -np.inf)


def _block_verdict(view: RequestView, _: Block, row: int, tolerance: float) -> Possible:
    """Whether u < h for draft token row + 1."""
    return _passes(view, row, _log_h(view, row + 1, tolerance), tolerance)


def _scaled_residual(view: RequestView, row: int) -> Law:
    """max(P p - q, 0) after the first `row` draft tokens were accepted."""
    return _residual(view, row, partial(_log_product, view, row))


def _log_product(view: RequestView, count: int, tolerance: float) -> Interval:
    """log P_count."""
    low, high = 0.0, 0.0
    for row, drafted in enumerate(view.drafts[:count]):
        least, most = log_ratio(view.target_laws[row], view.draft_laws[row], drafted, tolerance)
        low = low if low == -math.inf else min(0.0, low + least)
        high = high if high == -math.inf else min(0.0, high + most)
    return low, high


def _log_h(view: RequestView, count: int, tolerance: float) -> Interval:
    products = _log_product(view, count, tolerance)
    if count == len(view.drafts):
        return products
    left = _difference(view.target_laws[count], view.draft_laws[count], products, tolerance)
    least, most = map(_share_left, left, products)
    return least, most


def _share_left(left: Floats, log_product: float) -> float:
    mass, rest = float(np.exp(left).sum()), -math.expm1(log_product)
    if mass == 0:
        return 0.0 if rest == 0 else -math.inf
    return math.log(mass) - math.log(mass + rest)


def _entropy(law: Law) -> float:
    """The entropy of a law in nats."""
    log_p = np.where(law.log_p > -np.inf, law.log_p, 0.0)
    return -float((np.exp(law.log_p) * log_p).sum())


def _entropy_width(law: Law, tolerance: float) -> float:
    """How far rounding may move the entropy; a doubted token contributes about its own share."""
    width = 2 * tolerance * max(1.0, _entropy(law))
    doubted = law.doubted_mass(tolerance)
    return width + (doubted * (2 + abs(math.log(doubted)) + _entropy(law)) if doubted else 0.0)


def _typical_tokens(view: RequestView, policy: Typical, row: int, tolerance: float) -> Possible:
    """The tokens with p > min(epsilon, delta exp(-H))."""
    law = view.target_laws[row]
    (low, high), width = law.bounds(tolerance), _entropy_width(law, tolerance)
    least, most = (
        min(policy.epsilon, policy.delta * math.exp(min(shift - _entropy(law), 0.0)))
        for shift in (-width, width)
    )
    most = max(most, SMALLEST_FLOAT32) if tolerance else most
    return Possible(high > _log(least), low <= _log(most))


def _relaxed_tokens(view: RequestView, policy: RelaxedTopN, row: int, tolerance: float) -> Possible:
    """Of the n most likely tokens, ties included, those at most delta below the first.

    Logits rank tokens, so ranks are exact; without a delta only those tied with the first remain.
    """
    logits, (low, high) = view.target_rows[row], view.target_laws[row].bounds(tolerance)
    least, most, delta = np.exp(low), np.exp(high), policy.delta
    kept = Possible(high > -np.inf, least < SMALLEST_FLOAT32 if tolerance else low == -np.inf)
    near_best = Possible(most >= least.max() - delta, (least < most.max() - delta) & (delta > 0))
    rank = policy.top_n if delta > 0 else 1
    return kept & near_best & Possible.of(logits >= np.sort(logits)[-min(rank, len(logits))])


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _matches(view: RequestView, _: Policy, row: int, tolerance: float) -> Possible:
    """Whether the draft token is the target's own sample."""
    sample, drafted = view.samples[row], view.drafts[row]
    equal = sample.token_id == drafted
    if tolerance == 0:
        return Possible.of(equal)
    may_equal = equal or sample.could_be(drafted, tolerance)
    return Possible(may_equal, not equal or not sample.is_certain(tolerance))


def _forgiven(view: RequestView, policy: Fly, row: int, tolerance: float) -> Possible:
    """Whether the target is undecided at the row and the window after it matches."""
    law, edge = view.target_laws[row], policy.min_entropy * math.log(view.vocab_size)
    nats, width = _entropy(law), _entropy_width(law, tolerance)
    undecided = Possible(nats + width >= edge, nats - width < edge)
    for ahead in range(row + 1, row + 1 + policy.window):
        exists = ahead < len(view.drafts)
        undecided &= _matches(view, policy, ahead, tolerance) if exists else Possible.of(exists)
    return undecided


def _ratio_verdict(view: RequestView, _: Probabilistic, row: int, tolerance: float) -> Possible:
    asked = (view.target_laws[row], view.draft_laws[row], view.drafts[row])
    return _passes(view, row, log_ratio(*asked, tolerance), tolerance)


def _synthetic_verdict(
    view: RequestView, policy: Synthetic, row: int, tolerance: float
) -> Possible:
    before, rate = (1.0, *policy.rates)[row : row + 2] if row < len(policy.rates) else (1.0, 0.0)
    if rate in (0.0, before):
        return Possible.of(rate > 0)
    threshold = math.log(rate) - math.log(before)
    bounds = (threshold - tolerance / 2, threshold + tolerance / 2)
    return _passes(view, row, bounds, tolerance)


def _passes(view: RequestView, row: int, threshold: Interval, tolerance: float) -> Possible:
    """Whether the draft token's log uniform is below a threshold that is known within bounds."""
    value, (low, high) = math.log(view.uniforms[row]), threshold
    return Possible(value - tolerance / 2 < high, value + tolerance / 2 >= low)


Verdict = Callable[[RequestView, Any, int, float], Possible]
"""A policy's possible answers at a row under a relative change of the inputs; one answer at 0."""


@frozen
class PolicyRule:
    """What the contract says of one policy.

    Attributes:
        verdict: whether the draft token at a row passes its own test.
        uses_draft_law: whether it reads draft logits, so that bad ones stop a request.
        takes_last_success: whether a later success redeems an earlier failure.
        stays_when_greedy: whether it applies at temperature 0, where others are strict.
        residual: what a rejection draws from; None if the target's own sample stands.
        accepted: which tokens would survive at a row, for lossy policies that report it.
        turns_on_even_laws: whether uniform laws lie exactly on its edge. There rounding alone
            decides, for all requests of a batch, and neither answer is wrong.
    """

    verdict: Verdict
    uses_draft_law: bool = True
    takes_last_success: bool = False
    stays_when_greedy: bool = False
    residual: Callable[[RequestView, int], Law] | None = None
    accepted: Verdict | None = None
    turns_on_even_laws: Callable[[Any], bool] = lambda _: False


def _by_membership(tokens: Verdict, **more: Any) -> PolicyRule:
    def verdict(view: RequestView, policy: Any, row: int, tolerance: float) -> Possible:
        return tokens(view, policy, row, tolerance)[view.drafts[row]]

    return PolicyRule(verdict, accepted=tokens, **more)


# The entropy of a uniform law is the logarithm of its size. Two policies compare it with just that.
RULES: Mapping[type, PolicyRule] = MappingProxyType(
    {
        Strict: PolicyRule(_matches, uses_draft_law=False),
        Probabilistic: PolicyRule(_ratio_verdict, residual=_residual),
        Block: PolicyRule(_block_verdict, takes_last_success=True, residual=_scaled_residual),
        Synthetic: PolicyRule(_synthetic_verdict, uses_draft_law=False, stays_when_greedy=True),
        Typical: _by_membership(_typical_tokens, turns_on_even_laws=lambda p: p.delta == 1),
        RelaxedTopN: _by_membership(_relaxed_tokens),
        Fly: PolicyRule(
            lambda *asked: _matches(*asked) | _forgiven(*asked),
            accepted=_forgiven,
            turns_on_even_laws=lambda policy: policy.min_entropy == 1,
        ),
    }
)


def rule_of(policy: Policy) -> PolicyRule:
    """The rule of a policy's class.

    Raises:
        UnavailableError: the oracle does not know the class.
    """
    if type(policy) not in RULES:
        raise UnavailableError(f"policy: expected one that the oracle knows, got {policy!r}")
    return RULES[type(policy)]
