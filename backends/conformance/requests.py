"""A case's requests, and batches of them in any memory layout.

A request does not depend on its place in memory: tests lay the same requests out in several ways.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from attrs import Factory, evolve, frozen
from torch import Tensor

from ...core import PADDING_TOKEN_ID, SampleBatch, SamplingParams, SamplingTensors, VerifyBatch
from ...core.allowed_tokens import WORD_BITS, pack_allowed
from ...core.token_counts import TokenCounts
from .case import Case


@frozen(eq=False, kw_only=True)
class Request:
    """All that belongs to one request.

    Attributes:
        params: sampling parameters, with a seed.
        target_logits: [K + 1, V].
        draft_logits: [K, draft V]; unused where drafts are one-hot.
        draft_token_ids: K ids, bad ones included.
        position: the position that the first row decides.
        in_prompt: [V] bool, the prompt's tokens; False for an empty prompt.
        output_counts: [V] int32, the output's tokens; 0 for an empty output.
        allowed: the mask of each row, [V] bool, or None for a row without one.
    """

    params: SamplingParams
    target_logits: Tensor
    draft_logits: Tensor
    draft_token_ids: tuple[int, ...]
    position: int = 0
    in_prompt: Tensor | bool = False
    output_counts: Tensor | int = 0
    allowed: tuple[Tensor | None, ...] = Factory(
        lambda self: (None,) * len(self.target_logits), takes_self=True
    )

    @property
    def num_draft_tokens(self) -> int:
        """K."""
        return len(self.target_logits) - 1


@frozen
class Layout:
    """The places of requests in memory, which must not matter.

    Attributes:
        slots: the slot of each request; None for slot i, without slot_ids.
        spare_slots: slots after the last one in use; they hold NaN, like all slots without request.
        spare_drafts: columns of draft ids, and rows of each slot, that no request uses.
        spare_rows: rows of target logits after the last request's.
        gap: unused numbers between rows of logits. If there are any, positions, slots and row
            starts have gaps, too, and rows of logits name their masks.
    """

    slots: tuple[int, ...] | None = None
    spare_slots: int = 0
    spare_drafts: int = 0
    spare_rows: int = 0
    gap: int = 0


@frozen(eq=False)
class Inputs:
    """Makes batches of requests; unused logits are NaN, and unused ids -1.

    Attributes:
        case: what they share: V, dtypes, policy, whether drafts are one-hot or tokens counted.
        requests: in the batch's order.
        draft_to_target: [draft V] int64, or None for the same ids.
    """

    case: Case
    requests: tuple[Request, ...]
    layout: Layout = Layout()
    draft_to_target: Tensor | None = None

    @property
    def params(self) -> list[SamplingParams]:
        """The parameters of each request."""
        return [request.params for request in self.requests]

    def params_by_slot(self) -> SamplingTensors:
        """The parameters by slot, if requests have slots; unused slots hold other parameters."""
        slots = self.layout.slots
        if not slots:
            return SamplingTensors.stack(self.params)
        entries = [evolve(self.params[0], seed=slot) for slot in range(max(slots) + 1)]
        for slot, params in zip(slots, self.params, strict=True):
            entries[slot] = params
        return evolve(SamplingTensors.stack(entries), slot_ids=torch.tensor(slots))

    def verify_batch(self) -> VerifyBatch:
        """The batch to verify."""
        lengths = [request.num_draft_tokens for request in self.requests]
        width = max(lengths, default=0) + self.layout.spare_drafts
        starts = [0, *accumulate(length + 1 for length in lengths)]
        num_rows = starts[-1] + self.layout.spare_rows
        target = [row for request in self.requests for row in request.target_logits]
        padding = (PADDING_TOKEN_ID,) * width
        ids = [(request.draft_token_ids + padding)[:width] for request in self.requests]
        token_ids = torch.tensor(ids, dtype=getattr(torch, self.case.id_dtype))
        is_one_hot, slots = self.case.drafter == "one-hot", self.layout.slots
        is_counted = self.case.has("penalties") or self.case.has("room")
        return VerifyBatch(
            target_logits=self._logits(target, (num_rows, self.case.vocab_size), self.case.dtype),
            cu_num_logits=self._integers(starts),
            draft_token_ids=token_ids.reshape(len(ids), width),
            positions=self._integers([request.position for request in self.requests]),
            draft_logits=None if is_one_hot else self._draft_cache(width),
            slot_ids=None if slots is None else self._integers(slots),
            draft_to_target=None if is_one_hot else self.draft_to_target,
            token_counts=self._token_counts() if is_counted else None,
            **self._masks([mask for each in self.requests for mask in each.allowed], num_rows),
        )

    def plain_batch(self) -> SampleBatch:
        """The target's own draw at each request's first row."""
        rows = [request.target_logits[0] for request in self.requests]
        return SampleBatch(
            logits=self._logits(rows, (len(rows), self.case.vocab_size), self.case.dtype),
            positions=self._integers([request.position for request in self.requests]),
            slot_ids=self._integers(self._slots()[0]),
            token_counts=self._token_counts(),
            **self._masks([request.allowed[0] for request in self.requests], len(rows)),
        )

    def draft_batch(self, place: int) -> SampleBatch:
        """The draft's draw at one place of all requests; a row after a request's draft is NaN."""
        rows = [request.draft_logits[place - 1 : place].flatten() for request in self.requests]
        positions = [request.position + place - 1 for request in self.requests]
        return SampleBatch(
            logits=self._logits(rows, (len(rows), self._draft_vocab_size), self.case.draft_dtype),
            positions=self._integers(positions),
            draft_index=place,
            draft_stream=self.case.policy.draft_stream,
            draft_to_target=self.draft_to_target,
            target_vocab_size=None if self.draft_to_target is None else self.case.vocab_size,
        )

    def with_drafts(self, rows: Sequence[Sequence[int]]) -> "Inputs":
        """Replace the drafts, damaged if the case asks for it."""
        rng = np.random.default_rng((self.case.seed, 5))
        drafted = []
        for request, row in zip(self.requests, rows, strict=True):
            ids = tuple(self._damaged(drawn, rng) for drawn in row[: request.num_draft_tokens])
            drafted.append(evolve(request, draft_token_ids=ids))
        return evolve(self, requests=tuple(drafted))

    def with_arbitrary_drafts(self) -> "Inputs":
        """Use drafts that no model drew: half of their tokens are the target's most likely."""
        rng = np.random.default_rng((self.case.seed, 4))
        likely = (request.target_logits[:-1].argmax(-1).tolist() for request in self.requests)
        ids = self.case.vocab_size
        return self.with_drafts(
            [[t if rng.random() < 0.5 else int(rng.integers(ids)) for t in row] for row in likely]
        )

    def _damaged(self, token_id: int, rng: np.random.Generator) -> int:
        vocab_size = self.case.vocab_size
        bad_ids = (-1, -1, -1, -2, vocab_size, vocab_size + 7, -(2**31), 2**31 - 1)
        if self.case.has("bad ids") and rng.random() < 0.1:
            return int(rng.choice(bad_ids))
        # The draw failed.
        return int(rng.integers(vocab_size)) if token_id == PADDING_TOKEN_ID else token_id

    @property
    def _draft_vocab_size(self) -> int:
        if self.requests:
            return self.requests[0].draft_logits.shape[1]
        return self.case.vocab_size if self.draft_to_target is None else len(self.draft_to_target)

    def _slots(self) -> tuple[Sequence[int], int]:
        """Each request's slot, and how many slots there are."""
        slots = range(len(self.requests)) if self.layout.slots is None else self.layout.slots
        return slots, max(slots, default=-1) + 1 + self.layout.spare_slots

    def _integers(self, values: Sequence[int]) -> Tensor:
        """A tensor of integers, with zeros in the gaps."""
        column = torch.tensor(values, dtype=getattr(torch, self.case.id_dtype))[:, None]
        return torch.nn.functional.pad(column, (0, bool(self.layout.gap)))[:, 0]

    def _token_counts(self) -> TokenCounts:
        """The token counts of every slot; slots without a request hold arbitrary counts."""
        slots, num_slots = self._slots()
        counts = TokenCounts.empty(num_slots, self.case.vocab_size)
        counts.output_counts.fill_(99)
        for slot, request in zip(slots, self.requests, strict=True):
            counts.prompt_mask[slot] = request.in_prompt
            counts.output_counts[slot] = request.output_counts
        return counts

    def _masks(self, masks: list[Tensor | None], num_rows: int) -> dict[str, Any]:
        """The masks of rows in a batch's format; a spare row allows no token."""
        if not self.case.has("allowed tokens"):
            return {}
        nothing = torch.zeros(self.case.vocab_size, dtype=torch.bool)
        masks += [nothing] * (num_rows - len(masks))
        words = self._words([nothing, *(mask for mask in masks if mask is not None)])
        if not self.layout.gap and not self.case.has("strides"):
            return {"allowed_tokens": words[1:]}
        places = accumulate(mask is not None for mask in masks)
        rows = [-1 if mask is None else place for mask, place in zip(masks, places, strict=True)]
        return {"allowed_tokens": words, "allowed_rows": self._integers(rows)}

    def _words(self, masks: list[Tensor]) -> Tensor:
        """Masks with a gap after each; bits beyond the vocabulary are set."""
        behind = -self.case.vocab_size % WORD_BITS
        flags = torch.stack([torch.nn.functional.pad(m, (0, behind), value=True) for m in masks])
        words = pack_allowed(flags)
        return torch.nn.functional.pad(words, (0, self.layout.gap))[:, : words.shape[1]]

    def _draft_cache(self, width: int) -> Tensor:
        slots, num_slots = self._slots()
        shape = (num_slots, width, self._draft_vocab_size)
        cache = self._logits((), shape, self.case.draft_dtype)
        for slot, request in zip(slots, self.requests, strict=True):
            cache[slot, : request.num_draft_tokens] = request.draft_logits
        return cache

    def _logits(self, rows: Sequence[Tensor], shape: tuple[int, ...], dtype: str) -> Tensor:
        """Rows of logits, the last ones and empty ones NaN, as gaps are."""
        wide = (*shape[:-1], shape[-1] + self.layout.gap)
        logits = torch.full(wide, torch.nan, dtype=getattr(torch, dtype))[..., : shape[-1]]
        for place, row in zip(logits, rows, strict=False):
            place[: len(row)] = row
        return logits
