"""Probabilistic verification, the rule of speculative sampling.

Leviathan et al., "Fast inference from transformers via speculative decoding", ICML 2023; Chen et
al., "Accelerating large language model decoding with speculative sampling", arXiv 2302.01318.
"""

from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from .policy import DraftView, Policy


@frozen
class Probabilistic(Policy):
    """Accept x_i iff u < p_i(x_i) / q_i(x_i); on rejection draw from max(p_i - q_i, 0)."""

    name: ClassVar[str] = "probabilistic"
    lossless: ClassVar[bool] = True

    def log_thresholds(self, view: DraftView) -> Tensor:
        """Log p(x) - log q(x); where q(x) = 0 the token survives iff p(x) > 0."""
        return log_ratios(view)

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        """Log max(p - q, 0) at the row."""
        assert view.draft_log_probs is not None
        return log_difference(view.target_log_probs[row], view.draft_log_probs[row])


def log_ratios(view: DraftView) -> Tensor:
    """log p(x) - log q(x) of each draft token: -inf where p(x) = 0, +inf where only q(x) = 0.

    Returns:
        [K] float64.
    """
    assert view.draft_log_probs is not None
    chosen = view.draft_token_ids[:, None]
    log_p = view.target_log_probs[: view.num_draft_tokens].gather(1, chosen).squeeze(1)
    log_q = view.draft_log_probs.gather(1, chosen).squeeze(1)
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
