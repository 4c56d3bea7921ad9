"""One description of a call for the fused backends' kernels, verification or draw."""

from attrs import evolve, frozen
from torch import Tensor

from ..core import Policy, SampleBatch, SamplingTensors, Status, Stream, Strict, VerifyBatch


@frozen(eq=False)
class Step:
    """A verification. A draw is a strict verification of an empty draft.

    Attributes:
        logits: the target's.
        num_drafts: the length of the longest draft.
        draft_logits: None unless the policy looks at them.
        params: the requests' parameters; in a draft draw, the draft's recipe is the target's.
        policy: `Strict` wherever the requested policy would decide the same.
        stream, draft_index: select the noise of the target's own samples.
        invalid: the status of a request whose target row is unusable.
    """

    logits: Tensor
    num_drafts: int
    draft_logits: Tensor | None
    params: SamplingTensors
    policy: Policy
    stream: Stream = Stream.TARGET
    draft_index: int = 0
    invalid: Status = Status.TARGET_LOGITS_INVALID


def step_of(
    batch: VerifyBatch | SampleBatch, params: SamplingTensors, policy: Policy | None
) -> Step:
    """Describe a verification or, without a policy, a draw.

    A draft draw is described as a target's draw with the draft's recipe.
    """
    if isinstance(batch, SampleBatch):
        if batch.draft_index is None:
            return Step(batch.logits, 0, None, params, Strict())
        own = evolve(params, target=params.draft, bias=None, penalties=None, num_logprobs=None)
        index = 0 if batch.stream is Stream.TARGET else batch.draft_index
        invalid = Status.DRAFT_LOGITS_INVALID
        return Step(batch.logits, 0, None, own, Strict(), batch.stream, index, invalid)
    assert policy is not None
    num_drafts, draft_logits = batch.max_spec_len, batch.draft_logits
    if num_drafts == 0 or (params.target.all_greedy and policy.greedy_is_strict):
        policy = Strict()
    if params.draft.all_greedy or not policy.uses_draft_probs:
        draft_logits = None
    return Step(batch.target_logits, num_drafts, draft_logits, params, policy)
