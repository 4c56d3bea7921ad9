"""Every policy once more, from the text of the contract: its verdicts and its residuals.

It refuses to call a method of `acceptor.core.policies`; it reads their parameters.
"""

import math

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
from .block import block_verdict, scaled_residual
from .law import Law
from .lossy import Accepted, entropy, entropy_width, relaxed_tokens, typical_tokens
from .residual import residual
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
