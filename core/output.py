"""What a sampler returns."""

from enum import IntFlag, unique

from attrs import frozen
from torch import Tensor


@unique
class Status(IntFlag):
    """What went wrong with one request; its neighbours are untouched."""

    OK = 0
    TARGET_LOGITS_INVALID = 1
    """A needed row of target logits holds NaN or +inf, or only -inf: stopped before it."""
    DRAFT_LOGITS_INVALID = 2
    """The same for a row of draft logits."""
    DRAFT_TOKEN_INVALID = 4
    """A draft token id is below -1 or not in the vocabulary: the draft ends before it."""
    NOTHING_ALLOWED = 8
    """The mask of a needed row allows no token, or none with a logit above -inf: stopped before
    it."""


@frozen(eq=False)
class Logprobs:
    """Logprobs of emitted tokens and of the most likely ones, in nats.

    There is a place for every token id of the output.

    Attributes:
        emitted: [num_reqs, num_tokens] float32, -inf where nothing was emitted.
        top_token_ids: [num_reqs, num_tokens, n] int64, most likely first, lowest id first on a tie;
            tokens of probability 0 come last, in any order.
        top: [num_reqs, num_tokens, n] float32.
    """

    emitted: Tensor
    top_token_ids: Tensor
    top: Tensor


@frozen(eq=False)
class VerifyOutput:
    """The tokens that each request emits in this step.

    Attributes:
        token_ids: [num_reqs, max_spec_len + 1] int64: the accepted draft tokens, then one recovered
            or bonus token, then -1. A request that stopped has no recovered or bonus token.
        num_accepted: [num_reqs] int32, without the final token.
        status: [num_reqs] int32, bits of `Status`.
        logprobs: None unless a request asked for them.
        total_variation: [num_reqs, max_spec_len + 1] float32, how far the law of each emitted token
            was moved from the target's, see `Policy.total_variation`; None under policies that do
            not report it.
    """

    token_ids: Tensor
    num_accepted: Tensor
    status: Tensor
    logprobs: Logprobs | None
    total_variation: Tensor | None


@frozen(eq=False)
class SampleOutput:
    """One drawn token per request.

    Attributes:
        token_ids: [num_reqs] int64, -1 where the status is not OK.
        status: [num_reqs] int32, bits of `Status`.
        logprobs: None unless a request asked for them; num_tokens is 1.
    """

    token_ids: Tensor
    status: Tensor
    logprobs: Logprobs | None


Output = VerifyOutput | SampleOutput
