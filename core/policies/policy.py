"""What an acceptance policy is: thresholds, a rule and a residual for one request.

A policy is a frozen value and its own cache key. It knows no batches, devices or kernels: the
reference backend calls it, and fused backends dispatch on its type. Helpers that lossy policies
share (entropy, total variation, verdicts that do not depend on chance) stand here, too.
"""

from enum import Enum
from typing import ClassVar, Protocol

import torch
from attrs import Factory, frozen
from torch import Tensor

from ..randomness import Stream


class Rule(Enum):
    """How per-token verdicts become the number of accepted tokens."""

    FIRST_FAILURE = "first failure"
    """Accept up to the first token that fails."""
    LAST_SUCCESS = "last success"
    """Accept through the last token that succeeds, whatever failed before it."""


@frozen(eq=False)
class DraftView:
    """One request's draft of K tokens and what the two models think of it, in target token ids.

    Attributes:
        draft_token_ids: [K] int64, all inside the vocabulary.
        target_log_probs: [K + 1, vocab_size] float64, log p at each row, bonus row last; [K, …] if
            the request must stop before its bonus row.
        draft_log_probs: [K, vocab_size] float64, log q that each token was drawn from; None unless
            the policy's `uses_draft_probs`.
        target_token_ids: [K + 1] int64, the target's own TARGET-stream sample at each row; None
            unless the policy's `uses_target_samples`.
        allowed: [K + 1, vocab_size] bool, the tokens that masks allow; None where there are no
            masks. The target's probabilities already follow them.
        target_logits: [K + 1, vocab_size], what p was made of: logits after bias, penalties and
            masks. They rank tokens exactly, even where probabilities round alike. By default
            `target_log_probs`.
    """

    draft_token_ids: Tensor
    target_log_probs: Tensor
    draft_log_probs: Tensor | None
    target_token_ids: Tensor | None
    allowed: Tensor | None = None
    target_logits: Tensor = Factory(lambda self: self.target_log_probs, takes_self=True)

    @property
    def num_draft_tokens(self) -> int:
        """The draft's length K."""
        return self.draft_token_ids.shape[0]

    def of_drafts(self, rows: Tensor) -> Tensor:
        """Each draft token's entry in its row: [at least K, vocab_size] -> [K]."""
        return rows[: self.num_draft_tokens].gather(1, self.draft_token_ids[:, None])[:, 0]


class Policy(Protocol):
    """The law by which draft tokens survive.

    Token i passes iff log u_i < threshold i, where u_i is its acceptance uniform; the rule turns
    these verdicts into the number of accepted tokens. A threshold of 0 always passes, -inf never.
    A token that a mask forbids is never accepted, whatever its threshold.

    A policy must define its name, whether it is lossless, and its thresholds; it overrides what
    else differs from the defaults here.
    """

    lossless: ClassVar[bool] = False
    """Whether what is emitted follows the target's law exactly."""
    rule: ClassVar[Rule] = Rule.FIRST_FAILURE
    """How verdicts become the number of accepted tokens."""
    uses_draft_probs: ClassVar[bool] = True
    """Whether it needs the law that the draft was drawn from."""
    uses_target_samples: ClassVar[bool] = False
    """Whether it needs the target's own sample at every row."""
    greedy_is_strict: ClassVar[bool] = True
    """Whether it equals the strict rule at temperature 0, where p is one-hot."""

    @property
    def name(self) -> str:
        """The name that users choose it by."""

    @property
    def draft_stream(self) -> Stream:
        """The stream that draft tokens must be drawn with."""
        return Stream.DRAFT

    def log_thresholds(self, view: DraftView) -> Tensor:
        """The thresholds of all K tokens: [K] float64."""

    def log_residual(self, view: DraftView, row: int) -> Tensor | None:
        """The weights to draw from with the RECOVER stream if token row + 1 is the first rejected.

        Returns:
            [vocab_size] float64 log weights, -inf everywhere if nothing is left; None when the
            target's own sample (TARGET stream) stands.
        """
        return None

    def total_variation(self, view: DraftView) -> Tensor | None:
        """How far a lossy policy moves the law of the token emitted at each row.

        Returns:
            [K] float64 in [0, 1], the total variation between the target's law and the law of the
            emitted token over all possible drafts, given the tokens before it. None from a lossless
            policy, and from one that does not look at the draft's law.
        """
        return None


def reports_total_variation(policy: Policy) -> bool:
    """Whether outputs report `total_variation`: only a policy that knows the draft's law can."""
    return not policy.lossless and policy.uses_draft_probs


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy of each row in nats: [num_rows, vocab_size] -> [num_rows]."""
    p = log_probs.exp()
    return -torch.where(p > 0, p * log_probs, 0.0).sum(dim=-1)


def total_variation(view: DraftView, acceptance: Tensor) -> Tensor:
    """Total variation from p of a row's law that accepts x ~ q with a(x) and else emits y ~ p.

    The row's law is q a + p (1 - sum(q a)).

    Args:
        view: the draft.
        acceptance: [K, vocab_size or 1] bool, a(x): whether each token would survive.

    Returns:
        [K] float64.
    """
    assert view.draft_log_probs is not None
    survived = view.draft_log_probs.exp() * acceptance
    if view.allowed is not None:
        survived = survived * view.allowed[: view.num_draft_tokens]
    replaced = view.target_log_probs[: view.num_draft_tokens].exp() * survived.sum(-1, keepdim=True)
    return (survived - replaced).abs().sum(dim=-1) / 2


def log_verdicts(accepted: Tensor) -> Tensor:
    """Log thresholds that always (True) or never accept: bool [K] -> float64 [K]."""
    return torch.where(accepted, 0.0, -torch.inf).to(torch.float64)
