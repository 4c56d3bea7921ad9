"""Verification by the target's own samples: a draft token survives if it equals the target's.

Strict output equals plain sampling with the same seed, token for token, whatever the drafter. The
draft's probabilities do not matter. FLy forgives a mismatch where the target itself is undecided:
it trades exactness for acceptance.
"""

import math
from typing import ClassVar

import torch
from attrs import frozen
from torch import Tensor

from ..randomness import Stream
from .parameters import flag, integer, number
from .policy import DraftView, Policy, entropy, log_verdicts, total_variation


@frozen
class Strict(Policy):
    """Accept x_i iff x_i = y_i, the target's own sample; otherwise emit y_i.

    Attributes:
        coupled: draft with the target's own noise (the TARGET stream), so that both models tend to
            draw the same token (Daliri et al. 2024, arXiv 2408.07978). Accepts far more often than
            independent drafting, is as exact, and needs no draft logits either.

    Raises:
        InvalidInputError: coupled is no bool.
    """

    coupled: bool = flag(False)

    lossless: ClassVar[bool] = True
    uses_draft_probs: ClassVar[bool] = False
    uses_target_samples: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The name that users choose it by."""
        return "strict-coupled" if self.coupled else "strict"

    @property
    def draft_stream(self) -> Stream:
        """Coupled drafting shares the target's noise, which is safe only under accept-iff-equal."""
        return Stream.TARGET if self.coupled else Stream.DRAFT

    def log_thresholds(self, view: DraftView) -> Tensor:
        """0 where the draft token equals the target's sample, -inf elsewhere."""
        return log_verdicts(_matches(view))


@frozen
class Fly(Policy):
    """Strict, but a mismatch where the target is undecided is forgiven if the draft goes on well.

    A draft token that differs from the target's own sample survives iff the entropy of p, as a
    share of log(vocab_size), is at least `min_entropy`, and the `window` draft tokens after it all
    exist and equal the target's samples.

    Li et al., "Training-free loosely speculative decoding: accepting semantically correct drafts
    beyond exact match", arXiv 2511.22972, which uses a window of 6 on drafts of 15 to 25 tokens.

    Raises:
        InvalidInputError: min_entropy is outside [0, 1], or window outside [0, 1000].
    """

    min_entropy: float = number(0.3, 0, 1)
    window: int = integer(2, 0, 1000)

    name: ClassVar[str] = "fly"
    lossless: ClassVar[bool] = False
    uses_target_samples: ClassVar[bool] = True

    def log_thresholds(self, view: DraftView) -> Tensor:
        """0 where the token equals the target's sample or is forgiven, -inf elsewhere."""
        return log_verdicts(_matches(view) | self._forgiven(view))

    def total_variation(self, view: DraftView) -> Tensor:
        """Assumes that every draft is forgiven where this one is; exact for one-hot drafts."""
        return total_variation(view, self._forgiven(view)[:, None])

    def _forgiven(self, view: DraftView) -> Tensor:
        log_p = view.target_log_probs[: view.num_draft_tokens]
        forgiven = entropy(log_p) >= self.min_entropy * math.log(log_p.shape[1])
        matches = _matches(view)
        for ahead in range(1, self.window + 1):
            forgiven &= torch.nn.functional.pad(matches[ahead:], (0, min(ahead, len(matches))))
        return forgiven


def _matches(view: DraftView) -> Tensor:
    assert view.target_token_ids is not None
    return view.target_token_ids[: view.num_draft_tokens] == view.draft_token_ids
