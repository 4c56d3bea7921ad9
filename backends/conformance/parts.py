"""Batches taken apart into requests and put together in another arrangement.

It refuses to change what a request is: only where it lies and beside whom.
"""

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID, VerifyBatch
from ...core.sampling_params import SamplingParams
from ...core.sampling_tensors import SamplingTensors
from ...core.token_counts import TokenCounts
from .moved import stacked


@frozen(eq=False)
class Part:
    """All that belongs to one request.

    Attributes:
        target_logits: [K + 1, V].
        draft_token_ids: [K].
        position: what its first row decides.
        draft_logits: [places, draft V], its slot of the cache; None for a one-hot draft.
        counts: its slot of the token counts, with the slot dimension; None if nobody counts.
        wishes: its parameters.
    """

    target_logits: Tensor
    draft_token_ids: Tensor
    position: Tensor
    draft_logits: Tensor | None
    counts: TokenCounts | None
    wishes: SamplingParams


def take_apart(batch: VerifyBatch, wishes: Sequence[SamplingParams]) -> list[Part]:
    """The requests of a batch, in its order."""
    starts = batch.cu_num_logits.tolist()
    slots = range(batch.num_reqs) if batch.slot_ids is None else batch.slot_ids.tolist()
    return [
        Part(
            target_logits=batch.target_logits[starts[request] : starts[request + 1]],
            draft_token_ids=batch.draft_token_ids[
                request, : starts[request + 1] - starts[request] - 1
            ],
            position=batch.positions[request],
            draft_logits=None if batch.draft_logits is None else batch.draft_logits[slot],
            counts=None if batch.token_counts is None else _counts(batch.token_counts, slot),
            wishes=wishes[request],
        )
        for request, slot in enumerate(slots)
    ]


def _counts(counts: TokenCounts, slot: int) -> TokenCounts:
    return TokenCounts(counts.prompt_mask[slot : slot + 1], counts.output_counts[slot : slot + 1])


@frozen(eq=False)
class Arrangement:
    """How to lay requests out.

    Attributes:
        slots: each request's slot; others hold NaN.
        num_slots: how many there are.
        more_places: unused columns of draft ids, and rows of each slot.
        more_rows: unused rows of target logits behind the last request's.
        gap: numbers between one row of logits and the next.
    """

    slots: tuple[int, ...]
    num_slots: int
    more_places: int = 0
    more_rows: int = 0
    gap: int = 0


def put_together(
    parts: Sequence[Part], like: VerifyBatch, arrangement: Arrangement
) -> tuple[VerifyBatch, SamplingTensors]:
    """A batch of these requests, of the dtypes and the vocabularies of another batch."""
    device, ids = like.target_logits.device, like.cu_num_logits.dtype
    lengths = [len(part.target_logits) for part in parts]
    starts = [sum(lengths[:end]) for end in range(len(lengths) + 1)]
    num_rows = starts[-1] + arrangement.more_rows
    target = _poisoned((num_rows, like.vocab_size), like.target_logits, arrangement.gap)
    width = max([length - 1 for length in lengths], default=0) + arrangement.more_places
    shape = (len(parts), width)
    draft_token_ids = torch.full(shape, PADDING_TOKEN_ID, dtype=ids, device=device)
    for request, part in enumerate(parts):
        target[starts[request] : starts[request + 1]] = part.target_logits
        draft_token_ids[request, : lengths[request] - 1] = part.draft_token_ids
    batch = VerifyBatch(
        target_logits=target,
        cu_num_logits=torch.tensor(starts, dtype=ids, device=device),
        draft_token_ids=draft_token_ids,
        positions=_stack([part.position for part in parts], like.positions),
        draft_logits=_cache(parts, like, arrangement, width),
        slot_ids=torch.tensor(arrangement.slots, dtype=ids, device=device),
        draft_to_target=like.draft_to_target,
        token_counts=_all_counts(parts, like, arrangement),
    )
    return batch, stacked([part.wishes for part in parts], device)


def _stack(values: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.stack(list(values)) if values else like[:0].clone()


def _poisoned(shape: tuple[int, ...], like: Tensor, gap: int) -> Tensor:
    wide = torch.full(
        (*shape[:-1], shape[-1] + gap), torch.nan, dtype=like.dtype, device=like.device
    )
    return wide[..., : shape[-1]]


def _cache(
    parts: Sequence[Part], like: VerifyBatch, arrangement: Arrangement, width: int
) -> Tensor | None:
    if like.draft_logits is None:
        return None
    shape = (arrangement.num_slots, width, like.draft_logits.shape[-1])
    cache = _poisoned(shape, like.draft_logits, arrangement.gap)
    for slot, part in zip(arrangement.slots, parts, strict=True):
        assert part.draft_logits is not None
        count = len(part.draft_token_ids)
        cache[slot, :count] = part.draft_logits[:count]
    return cache


def _all_counts(
    parts: Sequence[Part], like: VerifyBatch, arrangement: Arrangement
) -> TokenCounts | None:
    if like.token_counts is None:
        return None
    counts = TokenCounts.empty(arrangement.num_slots, like.vocab_size, like.target_logits.device)
    for slot, part in zip(arrangement.slots, parts, strict=True):
        assert part.counts is not None
        counts.prompt_mask[slot] = part.counts.prompt_mask[0]
        counts.output_counts[slot] = part.counts.output_counts[0]
    return counts
