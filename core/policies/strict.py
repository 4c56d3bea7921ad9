"""Strict verification: a draft token survives if and only if the target samples the same token.

The output equals plain sampling with the same seed, token for token, whatever the drafter. The
draft's probabilities do not matter.
"""

from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from ..randomness import Stream
from .policy import DraftView, Policy


@frozen
class Strict(Policy):
    """Accept x_i iff x_i = y_i, the target's own sample; otherwise emit y_i.

    Attributes:
        coupled: draft with the target's own noise (the TARGET stream), so that both models tend to
            draw the same token (Daliri et al. 2024, arXiv 2408.07978). Accepts far more often than
            independent drafting, is as exact, and needs no draft logits either.
    """

    coupled: bool = False

    lossless: ClassVar[bool] = True
    uses_draft_probs: ClassVar[bool] = False
    uses_target_samples: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What users choose it by."""
        return "strict-coupled" if self.coupled else "strict"

    @property
    def draft_stream(self) -> Stream:
        """Coupled drafting shares the target's noise, which is safe only under accept-iff-equal."""
        return Stream.TARGET if self.coupled else Stream.DRAFT

    def log_thresholds(self, view: DraftView) -> Tensor:
        """0 where the draft token equals the target's sample, -inf elsewhere."""
        assert view.target_token_ids is not None
        equal = view.target_token_ids[: view.num_draft_tokens] == view.draft_token_ids
        return torch.where(equal, 0.0, -torch.inf).to(torch.float64)
