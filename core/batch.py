"""The inputs of a sampler: the models' logits and the drafts of one step.

Construction checks shapes, dtypes and devices, never values, so it does not wait for the device.
"""

import torch
from attrs import frozen
from torch import Tensor

from .allowed_tokens import num_mask_words
from .checks import FLOATS, INTEGERS, MAX_INT32, check_integer, check_kind, check_tensor
from .errors import InvalidInputError
from .policies.parameters import integer
from .randomness import Stream
from .token_counts import TokenCounts

PADDING_TOKEN_ID = -1
"""Marks an unused place in token ids, going in and coming out."""


@frozen(eq=False, kw_only=True)
class VerifyBatch:
    """Draft tokens of several requests and the target's logits at each of them.

    A request with K draft tokens owns K + 1 consecutive rows of target logits: row i scores draft
    token i, and the last row follows the whole draft. Requests may differ in K. Integer tensors may
    have any strides.

    Attributes:
        target_logits: [num_logits, vocab_size] float32, bfloat16 or float16, rows grouped by
            request, any row stride; the last dimension is contiguous.
        cu_num_logits: [num_reqs + 1] int, where each request's rows begin, with a leading 0.
        draft_token_ids: [num_reqs, max_spec_len] int. A -1 ends a request's draft early, and its
            row acts as the bonus row. So does an id outside the vocabulary, which is also flagged.
        positions: [num_reqs] int, absolute sequence position that the request's first row decides.
        draft_logits: [num_slots, at least max_spec_len, draft_vocab_size], the draft model's raw
            logits before temperature; row i of a slot is what draft token i was drawn from. None
            when drafts have no probabilities (n-gram, argmax): their law is one-hot. A draft model
            with more ids than the target draws from its logits cut to the target's ids, and the
            same view of them belongs here.
        slot_ids: [num_reqs] int, each request's slot in `draft_logits` and `token_counts`; None
            means request i uses slot i.
        draft_to_target: [draft_vocab_size] int64, the target id of each draft id, each id once;
            None means they are the same. Target ids without a draft id are never drafted. A sampler
            checks the values when it first sees the tensor; do not change them afterwards.
        token_counts: the counts for penalties; needed only if some request has penalties.
        allowed_tokens: [num_masks, ceil(vocab_size / 32)] int32, a bit per token, see
            `pack_allowed`. Masks restrict the target's law and leave the draft's alone. None allows
            all tokens everywhere.
        allowed_rows: [num_logits] int, the mask of each row of target logits, or a negative number
            where all tokens are allowed; None means row i has mask i.

    Raises:
        InvalidInputError: wrong shape, dtype or device.
    """

    target_logits: Tensor
    cu_num_logits: Tensor
    draft_token_ids: Tensor
    positions: Tensor
    draft_logits: Tensor | None = None
    slot_ids: Tensor | None = None
    draft_to_target: Tensor | None = None
    token_counts: TokenCounts | None = None
    allowed_tokens: Tensor | None = None
    allowed_rows: Tensor | None = None

    def __attrs_post_init__(self) -> None:
        _check_logits("target_logits", self.target_logits)
        device = self.target_logits.device
        check_tensor("draft_token_ids", self.draft_token_ids, (None, None), INTEGERS, device)
        check_tensor("cu_num_logits", self.cu_num_logits, (self.num_reqs + 1,), INTEGERS, device)
        num_ids = None
        if self.draft_logits is not None:
            _check_logits("draft_logits", self.draft_logits, num_dims=3, device=device)
            num_slots, num_places, num_ids = self.draft_logits.shape
            check_integer("draft_logits.shape[1]", num_places, self.max_spec_len)
            check_integer("draft_logits.shape[2]", num_ids, 1, self.vocab_size)
            if self.slot_ids is None:
                check_integer("draft_logits.shape[0]", num_slots, self.num_reqs)
        _check_rest(self, self.target_logits, num_ids)

    @property
    def num_reqs(self) -> int:
        """How many requests are verified."""
        return self.draft_token_ids.shape[0]

    @property
    def max_spec_len(self) -> int:
        """The longest draft that fits."""
        return self.draft_token_ids.shape[1]

    @property
    def vocab_size(self) -> int:
        """The target's vocabulary size V."""
        return self.target_logits.shape[1]

    @classmethod
    def dense(
        cls,
        *,
        target_logits: Tensor,
        draft_token_ids: Tensor,
        positions: Tensor,
        draft_logits: Tensor | None = None,
        slot_ids: Tensor | None = None,
        draft_to_target: Tensor | None = None,
        token_counts: TokenCounts | None = None,
        allowed_tokens: Tensor | None = None,
        allowed_rows: Tensor | None = None,
        cu_num_logits: Tensor | None = None,
    ) -> "VerifyBatch":
        """A batch whose requests all own max_spec_len + 1 rows, without copying logits.

        `target_logits` is [num_reqs, max_spec_len + 1, vocab_size]; all else is as in the class.
        `cu_num_logits` is made here, unless the caller passes the one of an earlier batch.

        Raises:
            InvalidInputError: wrong shape, dtype or device, or no view can line up the rows.
        """
        check_tensor("draft_token_ids", draft_token_ids, (None, None), INTEGERS)
        num_reqs, max_spec_len = draft_token_ids.shape
        num_rows = max_spec_len + 1
        check_tensor("target_logits", target_logits, (num_reqs, num_rows, None), FLOATS)
        if cu_num_logits is None:
            device, end = target_logits.device, (num_reqs + 1) * num_rows
            cu_num_logits = torch.arange(0, end, num_rows, dtype=torch.int32, device=device)
        return cls(
            target_logits=_line_up(target_logits),
            cu_num_logits=cu_num_logits,
            draft_token_ids=draft_token_ids,
            positions=positions,
            draft_logits=draft_logits,
            slot_ids=slot_ids,
            draft_to_target=draft_to_target,
            token_counts=token_counts,
            allowed_tokens=allowed_tokens,
            allowed_rows=allowed_rows,
        )


def _line_up(target_logits: Tensor) -> Tensor:
    num_reqs, num_rows, vocab_size = target_logits.shape
    try:
        return target_logits.view(num_reqs * num_rows, vocab_size)
    except RuntimeError:
        raise InvalidInputError(
            "target_logits: expected requests that follow each other at the stride of their rows, "
            f"so that nothing is copied, got strides {list(target_logits.stride())}"
        ) from None


@frozen(eq=False, kw_only=True)
class SampleBatch:
    """One row of logits per request, to draw one token from.

    Integer tensors may have any strides.

    Without `draft_index` this is the target's own draw: it uses the target recipe, bias and
    penalties, and the TARGET stream. With `draft_index` it is a draft draw: it uses the draft
    recipe, and the stream that the policy names (`Policy.draft_stream`).

    Attributes:
        logits: [num_reqs, vocab_size] float32, bfloat16 or float16, any row stride; raw.
        positions: [num_reqs] int, absolute sequence position of the drawn token.
        draft_index: 1-based place in the draft, shared by the batch; None for the target.
        draft_stream: the stream of a draft draw, DRAFT or TARGET.
        slot_ids: [num_reqs] int, each request's slot in `token_counts`; None means slot i.
        draft_to_target: [vocab_size] int64, the target id of each draft id; None means the same.
            The target's own draw has none.
        target_vocab_size: the vocabulary of the drawn ids; required with `draft_to_target`.
        token_counts: the counts for penalties; needed only if some request has penalties.
        allowed_tokens: as in `VerifyBatch`, like `allowed_rows`; a draft draw has none.

    Raises:
        InvalidInputError: wrong shape, dtype, device, draft index or draft stream, masks of a
            draft draw, or a map of the target's own.
    """

    logits: Tensor
    positions: Tensor
    draft_index: int | None = integer(None, 1, MAX_INT32)
    draft_stream: Stream = Stream.DRAFT
    slot_ids: Tensor | None = None
    draft_to_target: Tensor | None = None
    target_vocab_size: int | None = integer(None, 1, MAX_INT32)
    token_counts: TokenCounts | None = None
    allowed_tokens: Tensor | None = None
    allowed_rows: Tensor | None = None

    def __attrs_post_init__(self) -> None:
        _check_logits("logits", self.logits)
        _check_rest(self, self.logits, self.logits.shape[1])
        if self.draft_to_target is not None:
            if self.draft_index is None:
                raise InvalidInputError(
                    "draft_to_target: expected None without a draft_index, got a map"
                )
            check_integer("target_vocab_size", self.target_vocab_size, 1)
        if self.draft_index is not None and self.allowed_tokens is not None:
            raise InvalidInputError("allowed_tokens: expected None for a draft draw, got masks")
        # The other streams decide which drafts survive; samplers compare identities.
        if self.draft_stream is not Stream.DRAFT and self.draft_stream is not Stream.TARGET:
            raise InvalidInputError(
                f"draft_stream: expected Stream.DRAFT or Stream.TARGET, got {self.draft_stream!r}"
            )

    @property
    def num_reqs(self) -> int:
        """How many tokens are drawn."""
        return self.logits.shape[0]

    @property
    def vocab_size(self) -> int:
        """How many ids the drawn tokens belong to."""
        if self.draft_to_target is None or self.target_vocab_size is None:
            return self.logits.shape[1]
        return self.target_vocab_size

    @property
    def stream(self) -> Stream:
        """The stream that this draw uses."""
        return Stream.TARGET if self.draft_index is None else self.draft_stream


def _check_logits(
    name: str, logits: Tensor, num_dims: int = 2, device: torch.device | None = None
) -> None:
    check_tensor(name, logits, (None,) * num_dims, FLOATS, device)
    check_integer(f"{name}.shape[-1]", logits.shape[-1], 1)
    if logits.shape[-1] > 1:
        check_integer(f"{name}.stride(-1)", logits.stride(-1), 1, 1)


def _check_rest(
    batch: VerifyBatch | SampleBatch, logits: Tensor, num_draft_ids: int | None
) -> None:
    """Check the fields that both kinds of batch have beside their logits."""
    num_reqs, device, vocab_size = batch.num_reqs, logits.device, logits.shape[1]
    check_tensor("positions", batch.positions, (num_reqs,), INTEGERS, device)
    if batch.slot_ids is not None:
        check_tensor("slot_ids", batch.slot_ids, (num_reqs,), INTEGERS, device)
    if batch.token_counts is not None:
        check_kind("token_counts", batch.token_counts, TokenCounts)
        name, counted = "token_counts.prompt_mask", batch.token_counts.prompt_mask
        check_tensor(name, counted, (None, vocab_size), (torch.bool,), device)
        check_integer(f"{name}.shape[0]", len(counted), num_reqs if batch.slot_ids is None else 0)
    if batch.draft_to_target is not None:
        ids, shape = batch.draft_to_target, (num_draft_ids,)
        check_tensor("draft_to_target", ids, shape, (torch.int64,), device)
    _check_masks(batch.allowed_tokens, batch.allowed_rows, logits)


def _check_masks(masks: Tensor | None, mask_rows: Tensor | None, logits: Tensor) -> None:
    device, (num_rows, vocab_size) = logits.device, logits.shape
    if masks is None and mask_rows is not None:
        raise InvalidInputError("allowed_tokens: expected masks for allowed_rows, got None")
    if masks is not None:
        shape = (num_rows if mask_rows is None else None, num_mask_words(vocab_size))
        check_tensor("allowed_tokens", masks, shape, (torch.int32,), device)
        if masks.shape[1] > 1:
            check_integer("allowed_tokens.stride(1)", masks.stride(1), 1, 1)
    if mask_rows is not None:
        check_tensor("allowed_rows", mask_rows, (num_rows,), INTEGERS, device)
