"""Takes one request out of a batch, checks its rows and turns them into probabilities."""

import torch
from attrs import frozen
from torch import Tensor

from ...core import PADDING_TOKEN_ID, Policy, SamplingTensors, Status, VerifyBatch
from .statistics import adjust_logits, allowed_in, forbid, is_usable, num_leading, why_unusable
from .thresholds import log_probs


@frozen(eq=False)
class RequestRows:
    """The part of one request that can be verified.

    Attributes:
        request: its index in the batch.
        draft_token_ids: [n] int64, the draft up to the first bad id or row.
        raw_logits: [num_rows, vocab_size], unchanged; n + 1 rows, or n if `stop` is set.
        logits: [num_rows, vocab_size] float32, after bias, penalties and masks.
        allowed: [num_rows, vocab_size] bool, the tokens that masks allow; None without masks.
        draft_log_probs: [n, vocab_size] float64 in target ids, if the policy needs them.
        status: what is wrong with the draft's ids.
        stop: why no token can be drawn after the draft; OK if one can.
    """

    request: int
    draft_token_ids: Tensor
    raw_logits: Tensor
    logits: Tensor
    allowed: Tensor | None
    draft_log_probs: Tensor | None
    status: Status
    stop: Status


def cut_out(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, request: int
) -> RequestRows:
    """Prepare one request: end its draft at the first bad id, stop it at the first bad row."""
    start, end = batch.cu_num_logits[request : request + 2].tolist()
    drafts, status = _usable_ids(batch, request, max(end - start - 1, 0))
    num_drafts = len(drafts)
    raw_logits = batch.target_logits[start : min(start + num_drafts + 1, end)]
    requests = torch.full((len(raw_logits),), request, device=raw_logits.device)
    logits = adjust_logits(batch, params, requests, raw_logits, drafts)
    allowed = allowed_in(batch, start, len(logits), batch.vocab_size)
    logits = forbid(logits, allowed)
    draft_logits = _draft_logits(batch, params, policy, request, num_drafts)
    num_target = num_leading(is_usable(logits))
    num_draft = num_drafts if draft_logits is None else num_leading(is_usable(draft_logits))
    num_kept = min(num_drafts, num_target, num_draft)
    stop = Status.OK
    if num_target == num_kept:
        row = logits[num_kept : num_kept + 1]
        # A request that lacks the row has no usable one.
        reasons = why_unusable(batch, row, start + num_kept).tolist()
        stop = Status(reasons[0]) if reasons else Status.TARGET_LOGITS_INVALID
    elif num_kept < num_drafts:
        stop = Status.DRAFT_LOGITS_INVALID
    num_rows, drafts = num_kept + (stop is Status.OK), drafts[:num_kept]
    law = None
    if policy.uses_draft_probs:
        law = _draft_law(batch, params, requests[:num_kept], drafts, draft_logits)
    return RequestRows(
        request=request,
        draft_token_ids=drafts,
        raw_logits=raw_logits[:num_rows],
        logits=logits[:num_rows],
        allowed=None if allowed is None else allowed[:num_rows],
        draft_log_probs=law,
        status=status,
        stop=stop,
    )


def _usable_ids(batch: VerifyBatch, request: int, num_drafts: int) -> tuple[Tensor, Status]:
    drafts = batch.draft_token_ids[request, :num_drafts].long()
    for place, token_id in enumerate(drafts.tolist()):
        if not 0 <= token_id < batch.vocab_size:
            padding = token_id == PADDING_TOKEN_ID
            return drafts[:place], Status.OK if padding else Status.DRAFT_TOKEN_INVALID
    return drafts, Status.OK


def _draft_logits(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, request: int, num_drafts: int
) -> Tensor | None:
    # A greedy draft is one-hot at the token it drafted, so its logits need not be read.
    one_hot = batch.draft_logits is None or float(params.draft.temperature[request]) == 0
    if one_hot or not policy.uses_draft_probs:
        return None
    assert batch.draft_logits is not None
    slot = request if batch.slot_ids is None else int(batch.slot_ids[request])
    return batch.draft_logits[slot, :num_drafts]


def _draft_law(
    batch: VerifyBatch,
    params: SamplingTensors,
    requests: Tensor,
    drafts: Tensor,
    draft_logits: Tensor | None,
) -> Tensor:
    if draft_logits is not None:
        law = log_probs(draft_logits[: len(drafts)], params.draft, requests)
        return in_target_ids(law, batch.vocab_size, batch.draft_to_target)
    shape, dtype = (len(drafts), batch.vocab_size), torch.float64
    one_hot = batch.target_logits.new_full(shape, -torch.inf, dtype=dtype)
    return one_hot.scatter_(1, drafts[:, None], 0.0)


def in_target_ids(law: Tensor, vocab_size: int, draft_to_target: Tensor | None) -> Tensor:
    """Place log-probabilities of draft ids at their target ids, -inf everywhere else.

    Args:
        law: [num_rows, draft_vocab_size].
        vocab_size: the target's.
        draft_to_target: [draft_vocab_size] int64, or None where the ids are the same.

    Returns:
        [num_rows, vocab_size].
    """
    if draft_to_target is None and law.shape[1] == vocab_size:
        return law
    placed = law.new_full((len(law), vocab_size), -torch.inf)
    if draft_to_target is not None:
        return placed.index_copy_(1, draft_to_target, law)
    placed[:, : law.shape[1]] = law
    return placed
