"""Requests one by one, and how they lie in a batch: the same request in any layout.

So a test can say that a request's answer is its own, whatever surrounds it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from acceptor.core import (
    Policy,
    Sampler,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    VerifyBatch,
    VerifyOutput,
)


@frozen(eq=False, kw_only=True)
class Request:
    """What one request brings to a verification.

    Attributes:
        params: with a seed.
        target_logits: [K + 1, vocab_size].
        draft_token_ids: K ids, bad ones too.
        draft_logits: [K, draft_vocab_size]; unused in batches whose drafts are one-hot.
        position: that the first row decides.
        prompt, output: what penalties count.
    """

    params: SamplingParams
    target_logits: Tensor
    draft_token_ids: tuple[int, ...]
    draft_logits: Tensor
    position: int = 0
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()


@frozen(kw_only=True)
class Layout:
    """Where requests lie in memory, which must not matter.

    Attributes:
        spare_drafts: places in draft_token_ids that no request uses.
        padding: values between two rows of logits.
        slots: the slot of each request; None for slot i, with no slot_ids.
        spare_slots: slots behind the last one in use.
        id_dtype: of token ids, positions, slots and row starts.
        one_hot_drafts: leave the draft logits out.
    """

    spare_drafts: int = 0
    padding: int = 0
    slots: tuple[int, ...] | None = None
    spare_slots: int = 0
    id_dtype: torch.dtype = torch.int64
    one_hot_drafts: bool = False


@frozen
class Answer:
    """What one request got; logprobs only if it asked for them."""

    token_ids: tuple[int, ...]
    num_accepted: int
    status: int
    logprobs: tuple[float, ...] = ()
    top_token_ids: tuple[tuple[int, ...], ...] = ()
    top: tuple[tuple[float, ...], ...] = ()


def answers(
    sampler: Sampler, requests: Sequence[Request], policy: Policy, layout: Layout
) -> list[Answer]:
    """Verify requests as one batch."""
    params = SamplingTensors.stack([request.params for request in requests])
    output = sampler.verify(verify_batch(requests, layout), params, policy)
    return [_answer(output, request.params, index) for index, request in enumerate(requests)]


def verify_batch(requests: Sequence[Request], layout: Layout) -> VerifyBatch:
    """Lay requests out; what belongs to nobody is poisoned with NaN and impossible ids."""
    lengths = [len(request.draft_token_ids) for request in requests]
    max_spec_len = max(lengths) + layout.spare_drafts
    draft_token_ids = torch.full((len(requests), max_spec_len), 2**31 - 1, dtype=layout.id_dtype)
    for row, request in zip(draft_token_ids, requests, strict=True):
        row[: len(request.draft_token_ids)] = torch.tensor(request.draft_token_ids)
    starts = [0, *torch.tensor([length + 1 for length in lengths]).cumsum(0).tolist()]
    rows = torch.cat([request.target_logits for request in requests])
    slots = None if layout.slots is None else torch.tensor(layout.slots, dtype=layout.id_dtype)
    return VerifyBatch(
        target_logits=_padded(rows, layout.padding),
        cu_num_logits=torch.tensor(starts, dtype=layout.id_dtype),
        draft_token_ids=draft_token_ids,
        positions=torch.tensor([r.position for r in requests], dtype=layout.id_dtype),
        draft_logits=None if layout.one_hot_drafts else _cache(requests, layout, max_spec_len),
        slot_ids=slots,
        token_counts=_counts(requests, layout),
    )


def _slots(requests: Sequence[Request], layout: Layout) -> tuple[tuple[int, ...], int]:
    slots = tuple(range(len(requests))) if layout.slots is None else layout.slots
    return slots, max(slots, default=-1) + 1 + layout.spare_slots


def _padded(rows: Tensor, padding: int) -> Tensor:
    wide = rows.new_full((*rows.shape[:-1], rows.shape[-1] + padding), torch.nan)
    view = wide[..., : rows.shape[-1]]
    view.copy_(rows)
    return view


def _cache(requests: Sequence[Request], layout: Layout, max_spec_len: int) -> Tensor:
    slots, num_slots = _slots(requests, layout)
    like = requests[0].draft_logits
    cache = like.new_full((num_slots, max_spec_len, like.shape[-1]), torch.nan)
    for slot, request in zip(slots, requests, strict=True):
        cache[slot, : len(request.draft_logits)] = request.draft_logits
    return _padded(cache, layout.padding)


def _counts(requests: Sequence[Request], layout: Layout) -> TokenCounts:
    slots, num_slots = _slots(requests, layout)
    counts = TokenCounts.empty(num_slots, requests[0].target_logits.shape[1])
    counts.output_counts.fill_(99)
    for slot, request in zip(slots, requests, strict=True):
        counts.start(slot, request.prompt)
        counts.add(torch.tensor([slot]), torch.tensor([request.output], dtype=torch.int64))
    return counts


def _answer(output: VerifyOutput, params: SamplingParams, index: int) -> Answer:
    token_ids = output.token_ids[index].tolist()
    num_accepted = int(output.num_accepted[index])
    emitted = (
        token_ids[: num_accepted + 1] if token_ids[num_accepted] >= 0 else token_ids[:num_accepted]
    )
    assert set(token_ids[len(emitted) :]) <= {-1}
    answer = (tuple(emitted), num_accepted, int(output.status[index]))
    if params.logprobs is None:
        return Answer(*answer)
    assert output.logprobs is not None
    places = slice(len(emitted))
    return Answer(
        *answer,
        tuple(output.logprobs.emitted[index, places].tolist()),
        tuple(map(tuple, output.logprobs.top_token_ids[index, places, : params.logprobs].tolist())),
        tuple(map(tuple, output.logprobs.top[index, places, : params.logprobs].tolist())),
    )


def certain(*token_ids: int, vocab_size: int = 5) -> Tensor:
    """Rows of logits that leave no choice: only one token of each has a finite one."""
    rows = torch.full((len(token_ids), vocab_size), -torch.inf)
    rows[torch.arange(len(token_ids)), torch.tensor(token_ids)] = 0.7
    return rows


def request_of(
    draft_token_ids: tuple[int, ...],
    target_logits: Tensor,
    draft_logits: Tensor | None = None,
    **params: Any,
) -> Request:
    """A request with a seed; without draft logits, its draft model finds all tokens alike."""
    if draft_logits is None:
        draft_logits = torch.zeros(len(draft_token_ids), target_logits.shape[1])
    return Request(
        params=SamplingParams(seed=3, **params),
        target_logits=target_logits,
        draft_token_ids=draft_token_ids,
        draft_logits=draft_logits,
    )
