"""Verification by the ratio of both models' probabilities, the rule of speculative sampling.

Block verification judges the whole draft together, and more of it survives: a token that failed
alone is accepted if a later one passes.
"""

from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from .policy import DraftView, Policy, Rule


@frozen
class Probabilistic(Policy):
    """Accept x_i iff u < p_i(x_i) / q_i(x_i); on rejection draw from max(p_i - q_i, 0).

    Leviathan et al., "Fast inference from transformers via speculative decoding", ICML 2023; Chen
    et al., "Accelerating large language model decoding with speculative sampling", arXiv
    2302.01318.
    """

    name: ClassVar[str] = "probabilistic"
    lossless: ClassVar[bool] = True

    def log_thresholds(self, view: DraftView) -> Tensor:
        """Log p(x) - log q(x); where q(x) = 0 the token survives iff p(x) > 0."""
        return log_ratios(view)

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        """Log max(p - q, 0) at the row."""
        assert view.draft_log_probs is not None
        return log_difference(view.target_log_probs[row], view.draft_log_probs[row])


@frozen
class Block(Policy):
    """Accept through the last i with u_i < h_i, on rejection draw from max(P_i p - q, 0).

    P_i is the running product of p / q, cut at 1 after every factor; with Z_i the mass of
    max(P_i p - q, 0) at the next row, h_i = Z_i / (Z_i + 1 - P_i), and h_K = P_K for the whole
    draft. Never accepts fewer tokens on average than `Probabilistic`, and emits the same law.

    Sun et al., "Block verification accelerates speculative decoding", arXiv 2403.10444.
    """

    name: ClassVar[str] = "block"
    lossless: ClassVar[bool] = True
    rule: ClassVar[Rule] = Rule.LAST_SUCCESS

    def log_thresholds(self, view: DraftView) -> Tensor:
        """The logarithms of h_1 … h_K."""
        log_products = _log_products(view)
        thresholds = [
            _log_h(log_products[row], self.log_residual(view, row))
            for row in range(1, view.num_draft_tokens)
        ]
        return torch.stack([*thresholds, log_products[-1]])

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        """log max(P p - q, 0) at the row, P the product over the accepted tokens before it."""
        assert view.draft_log_probs is not None
        log_scaled = _log_products(view)[row] + view.target_log_probs[row]
        return log_difference(log_scaled, view.draft_log_probs[row])


def log_ratios(view: DraftView) -> Tensor:
    """log p(x) - log q(x) of each draft token: -inf where p(x) = 0, +inf where only q(x) = 0.

    Returns:
        [K] float64.
    """
    assert view.draft_log_probs is not None
    log_p, log_q = map(view.of_drafts, (view.target_log_probs, view.draft_log_probs))
    return torch.where(log_p == -torch.inf, log_p, log_p - log_q)


def log_difference(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Log max(p - q, 0) without leaving the logarithmic scale, -inf where q >= p: [vocab_size].

    Args:
        log_p: [vocab_size] float64.
        log_q: [vocab_size] float64.
    """
    larger = log_p > log_q
    ratio = torch.where(larger, log_q - log_p, -torch.inf).exp()
    return torch.where(larger, log_p + torch.log1p(-ratio), -torch.inf)


def _log_products(view: DraftView) -> Tensor:
    """[K + 1] float64: log P_0 = 0 and on."""
    ratios = log_ratios(view)
    products = [ratios.new_zeros(())]
    for ratio in ratios:
        # A product that is 0 stays 0, even if the next token had no draft probability (ratio +inf).
        dead = products[-1] == -torch.inf
        products.append(torch.where(dead, products[-1], products[-1] + ratio).clamp(max=0.0))
    return torch.stack(products)


def _log_h(log_product: Tensor, log_residual: Tensor) -> Tensor:
    mass = log_residual.exp().sum()
    rest = -torch.expm1(log_product)
    # No mass left on either side means that p and q agree: 0 / 0 accepts.
    return torch.where(mass + rest == 0, 0.0, mass.log() - (mass + rest).log())
