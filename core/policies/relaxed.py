"""Relaxed top-N acceptance: a draft token survives among the target's near-best tokens.

It trades exactness for acceptance.
"""

from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from ..checks import MAX_INT32
from .parameters import integer, number
from .policy import DraftView, Policy, total_variation, verdicts_of_drafts


@frozen
class RelaxedTopN(Policy):
    """Accept x iff it is among the n most likely tokens and p(x) >= max p - delta.

    The rule of TensorRT-LLM's relaxed acceptance; tokens tied with the n-th are among them.

    Raises:
        InvalidInputError: top_n is below 1, or delta outside [0, 1].
    """

    top_n: int = integer(10, 1, MAX_INT32)
    delta: float = number(0.6, 0, 1)

    name: ClassVar[str] = "relaxed"
    lossless: ClassVar[bool] = False

    def log_thresholds(self, view: DraftView) -> Tensor:
        """0 where the draft token is among the relaxed ones, -inf elsewhere."""
        return verdicts_of_drafts(view, self._accepted(view))

    def total_variation(self, view: DraftView) -> Tensor:
        """Over all tokens that could have been drafted."""
        return total_variation(view, self._accepted(view).to(torch.float64))

    def _accepted(self, view: DraftView) -> Tensor:
        log_p = view.target_log_probs[: view.num_draft_tokens]
        largest = log_p.topk(min(self.top_n, log_p.shape[1]), dim=-1).values
        near_best = log_p.exp() >= largest[:, :1].exp() - self.delta
        return near_best & (log_p >= largest[:, -1:]) & (log_p > -torch.inf)
