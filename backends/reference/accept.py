"""How many draft tokens survive: the policy's thresholds against the acceptance uniforms."""

import torch
from torch import Tensor

from ...core.policies import DraftView, Policy, Rule
from .draw import Draws
from .statistics import num_leading


def num_accepted(view: DraftView, policy: Policy, draws: Draws) -> int:
    """Count the accepted tokens by the policy's rule."""
    if view.num_draft_tokens == 0:
        return 0
    verdicts = _verdicts(_log_thresholds(view, policy), draws)
    if policy.rule is Rule.FIRST_FAILURE:
        return num_leading(verdicts)
    successes = verdicts.nonzero()
    return int(successes[-1]) + 1 if len(successes) else 0


def _log_thresholds(view: DraftView, policy: Policy) -> Tensor:
    thresholds = policy.log_thresholds(view)
    if view.allowed is None:
        return thresholds
    allowed = view.allowed[: view.num_draft_tokens].gather(1, view.draft_token_ids[:, None])[:, 0]
    return torch.where(allowed, thresholds, -torch.inf)


def _verdicts(log_thresholds: Tensor, draws: Draws) -> Tensor:
    # Uniforms lie strictly inside (0, 1): if no threshold does, none has to be drawn.
    always = log_thresholds >= 0
    if bool((always | (log_thresholds == -torch.inf)).all()):
        return always
    return draws.uniforms(len(log_thresholds)).log() < log_thresholds
