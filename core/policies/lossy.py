"""What lossy policies share: verdicts without chance, entropy, and total variation."""

import torch
from torch import Tensor

from .policy import DraftView


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy of each row in nats: [num_rows, vocab_size] -> [num_rows]."""
    p = log_probs.exp()
    return -torch.where(p > 0, p * log_probs, 0.0).sum(dim=-1)


def total_variation(view: DraftView, acceptance: Tensor) -> Tensor:
    """Between p and the law of a row that accepts x ~ q with a(x) and else emits y ~ p.

    That law is q a + p (1 - sum(q a)).

    Args:
        view: the draft.
        acceptance: [K, vocab_size] float64, the chance a(x) that each token would survive.

    Returns:
        [K] float64.
    """
    assert view.draft_log_probs is not None
    survived = view.draft_log_probs.exp() * acceptance
    if view.allowed is not None:
        survived = survived * view.allowed[: view.num_draft_tokens]
    replaced = view.target_log_probs[: view.num_draft_tokens].exp() * survived.sum(-1, keepdim=True)
    return (survived - replaced).abs().sum(dim=-1) / 2


def verdicts_of_drafts(view: DraftView, accepted: Tensor) -> Tensor:
    """Log thresholds of the drafted tokens, given which would survive: bool [K, vocab_size]."""
    return log_verdicts(accepted.gather(1, view.draft_token_ids[:, None]).squeeze(1))


def log_verdicts(accepted: Tensor) -> Tensor:
    """Log thresholds that always or never accept: bool [K] -> float64 [K]."""
    return torch.where(accepted, 0.0, -torch.inf).to(torch.float64)
