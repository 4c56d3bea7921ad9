"""Typical acceptance: a draft token survives if the target finds it likely enough.

It trades exactness for acceptance.
"""

from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from .parameters import number
from .policy import DraftView, Policy, entropy, total_variation, verdicts_of_drafts


@frozen
class Typical(Policy):
    """Accept x iff p(x) > min(epsilon, delta * exp(-H(p))), H the entropy in nats.

    Cai et al., "Medusa: simple LLM inference acceleration framework with multiple decoding heads",
    ICML 2024 (arXiv 2401.10774), section 2.3.1.

    Raises:
        InvalidInputError: a parameter is outside [0, 1].
    """

    epsilon: float = number(0.09, 0, 1)
    delta: float = number(0.3, 0, 1)

    name: ClassVar[str] = "typical"
    lossless: ClassVar[bool] = False

    def log_thresholds(self, view: DraftView) -> Tensor:
        """0 where the draft token is typical, -inf elsewhere."""
        return verdicts_of_drafts(view, self._accepted(view))

    def total_variation(self, view: DraftView) -> Tensor:
        """Over all tokens that could have been drafted."""
        return total_variation(view, self._accepted(view).to(torch.float64))

    def _accepted(self, view: DraftView) -> Tensor:
        log_p = view.target_log_probs[: view.num_draft_tokens]
        threshold = (self.delta * (-entropy(log_p)).exp()).clamp(max=self.epsilon)
        # As logarithms, because a probability can round to 0.
        return log_p > threshold.log()[:, None]
