"""Acceptance by the target's law alone: a draft token survives if it is likely enough.

It trades exactness for acceptance.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from ..checks import MAX_INT32
from .parameters import integer, number
from .policy import DraftView, Policy, entropy, log_verdicts, total_variation


class _AmongLikely(Policy):
    """Accept x iff it is one of the tokens that the target finds likely."""

    lossless: ClassVar[bool] = False

    def log_thresholds(self, view: DraftView) -> Tensor:
        """0 where the draft token is likely, -inf elsewhere."""
        return log_verdicts(view.of_drafts(self._accepted(view)))

    def total_variation(self, view: DraftView) -> Tensor:
        """The variation over all tokens that could have been drafted."""
        return total_variation(view, self._accepted(view))

    @abstractmethod
    def _accepted(self, view: DraftView) -> Tensor:
        """Which tokens are likely: [K, vocab_size] bool."""


@frozen
class Typical(_AmongLikely):
    """Accept x iff p(x) > min(epsilon, delta * exp(-H(p))), H the entropy in nats.

    Cai et al., "Medusa: simple LLM inference acceleration framework with multiple decoding heads",
    ICML 2024 (arXiv 2401.10774), section 2.3.1.

    Raises:
        InvalidInputError: a parameter is outside [0, 1].
    """

    epsilon: float = number(0.09, 0, 1)
    delta: float = number(0.3, 0, 1)

    name: ClassVar[str] = "typical"

    def _accepted(self, view: DraftView) -> Tensor:
        log_p = view.target_log_probs[: view.num_draft_tokens]
        threshold = (self.delta * (-entropy(log_p)).exp()).clamp(max=self.epsilon)
        # As logarithms, because a probability can round to 0.
        return log_p > threshold.log()[:, None]


@frozen
class RelaxedTopN(_AmongLikely):
    """Accept x iff it is among the n most likely tokens and p(x) >= max p - delta.

    The rule of TensorRT-LLM's relaxed acceptance. Logits rank tokens, as for top-k: those tied with
    the n-th are among the n most likely. If delta is 0, only those tied with the first are.

    Raises:
        InvalidInputError: top_n is below 1, or delta outside [0, 1].
    """

    top_n: int = integer(10, 1, MAX_INT32)
    delta: float = number(0.6, 0, 1)

    name: ClassVar[str] = "relaxed"

    @property
    def num_likely(self) -> int:
        """The rank up to which tokens can survive."""
        return self.top_n if self.delta > 0 else 1

    def _accepted(self, view: DraftView) -> Tensor:
        rows = slice(view.num_draft_tokens)
        logits, log_p = view.target_logits[rows], view.target_log_probs[rows]
        largest = logits.topk(min(self.num_likely, logits.shape[1]), dim=-1).values
        near_best = log_p.exp() >= log_p.amax(-1, keepdim=True).exp() - self.delta
        return near_best & (logits >= largest[:, -1:]) & (log_p > -torch.inf)
