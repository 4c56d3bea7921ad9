"""Requests one by one, and batches of them in any layout.

What a request is does not depend on where it lies: tests lay the same requests out in several ways.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from attrs import field, frozen
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID, VerifyBatch
from ...core.sampling_params import SamplingParams
from ...core.token_counts import TokenCounts


@frozen(eq=False)
class Models:
    """What all requests of a batch share.

    Attributes:
        vocab_size, draft_vocab_size: V and the draft's V.
        dtype, draft_dtype: of logits.
        is_one_hot: drafts have no probabilities.
        draft_to_target: [draft V] int64, or None for the same ids.
        are_counted: the batch has token counts.
    """

    vocab_size: int
    draft_vocab_size: int
    dtype: torch.dtype = torch.float32
    draft_dtype: torch.dtype = torch.float32
    is_one_hot: bool = False
    draft_to_target: Tensor | None = None
    are_counted: bool = True


@frozen(eq=False, kw_only=True)
class Request:
    """All that belongs to one request.

    Attributes:
        params: with a seed.
        target_logits: [K + 1, V].
        draft_logits: [K, draft V]; unused where drafts are one-hot.
        draft_token_ids: K ids, bad ones too.
        position: that the first row decides.
        in_prompt: [V] bool, what the repetition penalty counts; None for an empty prompt.
        output_counts: [V] int32, what penalties count; None for an empty output.
    """

    params: SamplingParams
    target_logits: Tensor
    draft_logits: Tensor
    draft_token_ids: tuple[int, ...]
    position: int = 0
    in_prompt: Tensor | None = None
    output_counts: Tensor | None = None

    @property
    def num_draft_tokens(self) -> int:
        """K."""
        return len(self.target_logits) - 1


@frozen(kw_only=True)
class Layout:
    """Where requests lie in memory, which must not matter.

    Attributes:
        slots: of each request; None for slot i, with no slot_ids.
        spare_slots: behind the last one in use; they hold NaN, as all slots without a request.
        spare_drafts: columns of draft ids, and rows of each slot, that no request uses.
        spare_rows: rows of target logits behind the last request's.
        gap: numbers between one row of logits and the next.
        id_dtype: of token ids, positions, slots and row starts.
        integer_stride: of positions, slots and row starts.
    """

    slots: tuple[int, ...] | None = None
    spare_slots: int = 0
    spare_drafts: int = 0
    spare_rows: int = 0
    gap: int = 0
    id_dtype: torch.dtype = field(default=torch.int64)
    integer_stride: int = 1

    def slots_of(self, num_reqs: int) -> tuple[Sequence[int], int]:
        """Each request's slot, and how many slots there are."""
        slots = range(num_reqs) if self.slots is None else self.slots
        return slots, max(slots, default=-1) + 1 + self.spare_slots

    def integers(self, values: Sequence[int]) -> Tensor:
        """A tensor of them; zeros in between."""
        wide = torch.zeros(len(values), self.integer_stride, dtype=self.id_dtype)
        wide[:, 0] = torch.tensor(values, dtype=self.id_dtype)
        return wide[:, 0]


def lay_out(models: Models, requests: Sequence[Request], layout: Layout) -> VerifyBatch:
    """A batch of requests; what belongs to nobody is NaN in logits and -1 in ids."""
    lengths = [request.num_draft_tokens for request in requests]
    width = max(lengths, default=0) + layout.spare_drafts
    starts = [0, *accumulate(length + 1 for length in lengths)]
    target = _unwritten((starts[-1] + layout.spare_rows, models.vocab_size), models.dtype, layout)
    token_ids = torch.full((len(requests), width), PADDING_TOKEN_ID, dtype=layout.id_dtype)
    for place, (request, start) in enumerate(zip(requests, starts[:-1], strict=True)):
        target[start : starts[place + 1]] = request.target_logits
        token_ids[place, : lengths[place]] = torch.tensor(
            request.draft_token_ids, dtype=layout.id_dtype
        )
    return VerifyBatch(
        target_logits=target,
        cu_num_logits=layout.integers(starts),
        draft_token_ids=token_ids,
        positions=layout.integers([request.position for request in requests]),
        draft_logits=None if models.is_one_hot else _draft_cache(models, requests, layout, width),
        slot_ids=None if layout.slots is None else layout.integers(layout.slots),
        draft_to_target=None if models.is_one_hot else models.draft_to_target,
        token_counts=token_counts(models, requests, layout) if models.are_counted else None,
    )


def token_counts(models: Models, requests: Sequence[Request], layout: Layout) -> TokenCounts:
    """What penalties count in every slot; slots without a request count nonsense."""
    slots, num_slots = layout.slots_of(len(requests))
    counts = TokenCounts.empty(num_slots, models.vocab_size)
    counts.output_counts.fill_(99)
    for slot, request in zip(slots, requests, strict=True):
        counts.start(slot, ())
        if request.in_prompt is not None:
            counts.prompt_mask[slot] = request.in_prompt
        if request.output_counts is not None:
            counts.output_counts[slot] = request.output_counts
    return counts


def _draft_cache(models: Models, requests: Sequence[Request], layout: Layout, width: int) -> Tensor:
    slots, num_slots = layout.slots_of(len(requests))
    shape = (num_slots, width, models.draft_vocab_size)
    cache = _unwritten(shape, models.draft_dtype, layout)
    for slot, request in zip(slots, requests, strict=True):
        cache[slot, : request.num_draft_tokens] = request.draft_logits
    return cache


def _unwritten(shape: tuple[int, ...], dtype: torch.dtype, layout: Layout) -> Tensor:
    wide = torch.full((*shape[:-1], shape[-1] + layout.gap), torch.nan, dtype=dtype)
    return wide[..., : shape[-1]]
