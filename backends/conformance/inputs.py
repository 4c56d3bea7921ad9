"""From a case to requests, models and a layout: what the models said, and drafts for it."""

from collections.abc import Sequence

import numpy as np
import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID, SampleBatch, VerifyBatch
from ...core.sampling_params import SamplingParams
from .case import Case
from .logits import draft_logits, mask, spoil, target_logits
from .params import all_params
from .requests import Layout, Models, Request, lay_out, token_counts


@frozen(eq=False)
class Inputs:
    """A case's requests, what they share, and how they lie."""

    case: Case
    models: Models
    requests: tuple[Request, ...]
    layout: Layout

    @property
    def params(self) -> list[SamplingParams]:
        """Each request's."""
        return [request.params for request in self.requests]

    def verify_batch(self) -> VerifyBatch:
        """What is to be verified."""
        return lay_out(self.models, self.requests, self.layout)

    def plain_batch(self) -> SampleBatch:
        """The target's own draw at each request's first row."""
        rows = [request.target_logits[0] for request in self.requests]
        empty = torch.empty(0, self.models.vocab_size, dtype=self.models.dtype)
        return SampleBatch(
            logits=torch.stack(rows) if rows else empty,
            positions=self.layout.integers([request.position for request in self.requests]),
            slot_ids=self.layout.integers(self.layout.slots_of(len(self.requests))[0]),
            token_counts=token_counts(self.models, self.requests, self.layout),
        )

    def draft_batch(self, place: int) -> SampleBatch:
        """The draft's draw at a place of all requests; a row behind a request's draft is NaN."""
        models, nothing = self.models, torch.full((self.models.draft_vocab_size,), torch.nan)
        rows = [
            request.draft_logits[place - 1] if place <= request.num_draft_tokens else nothing
            for request in self.requests
        ]
        positions = [request.position + place - 1 for request in self.requests]
        return SampleBatch(
            logits=torch.stack([row.to(models.draft_dtype) for row in rows]),
            positions=self.layout.integers(positions),
            draft_index=place,
            draft_stream=self.case.policy.draft_stream,
            draft_to_target=models.draft_to_target,
            target_vocab_size=None if models.draft_to_target is None else models.vocab_size,
        )

    def with_drafts(self, rows: Sequence[Sequence[int]]) -> "Inputs":
        """Drafts in place of those that there are; damaged if the case wants it."""
        rng = np.random.default_rng((self.case.seed, 5))
        drafted = [
            evolve(
                request,
                draft_token_ids=tuple(
                    self._damaged(token_id, rng) for token_id in row[: request.num_draft_tokens]
                ),
            )
            for request, row in zip(self.requests, rows, strict=True)
        ]
        return evolve(self, requests=tuple(drafted))

    def with_arbitrary_drafts(self) -> "Inputs":
        """Drafts that nobody drew: half of them the target's most likely tokens."""
        rng = np.random.default_rng((self.case.seed, 4))
        likely = (request.target_logits[:-1].argmax(-1).tolist() for request in self.requests)
        ids = self.models.vocab_size
        return self.with_drafts(
            [[t if rng.random() < 0.5 else int(rng.integers(ids)) for t in row] for row in likely]
        )

    def _damaged(self, token_id: int, rng: np.random.Generator) -> int:
        vocab_size = self.models.vocab_size
        bad_ids = (-1, -1, -1, -2, vocab_size, vocab_size + 7, -(2**31), 2**31 - 1)
        if self.case.has("bad ids") and rng.random() < 0.1:
            return int(rng.choice(bad_ids))
        # A draw that failed.
        return int(rng.integers(vocab_size)) if token_id == PADDING_TOKEN_ID else token_id


def make_inputs(case: Case) -> Inputs:
    """What a case stands for; drafts are yet to be made."""
    noise = torch.Generator().manual_seed(case.seed)
    lengths = [length + 1 for length in case.num_draft_tokens]
    rows = target_logits(case, sum(lengths), noise)
    id_map, drafted = _draft_vocabulary(case, draft_logits(case, rows, noise), noise)
    models = Models(
        vocab_size=case.vocab_size,
        draft_vocab_size=drafted.shape[1],
        dtype=getattr(torch, case.dtype),
        draft_dtype=getattr(torch, case.draft_dtype),
        is_one_hot=case.drafter == "one-hot",
        draft_to_target=id_map,
        are_counted=case.has("penalties") or case.has("room"),
    )
    target = _finished(case, rows, "bad target rows", noise).to(models.dtype).split(lengths)
    draft = _finished(case, drafted, "bad draft rows", noise).to(models.draft_dtype).split(lengths)
    requests = [
        _request(case, *each, noise) for each in zip(all_params(case), target, draft, strict=True)
    ]
    return Inputs(case, models, tuple(requests), _layout(case, noise))


def _request(
    case: Case, params: SamplingParams, target: Tensor, draft: Tensor, noise: torch.Generator
) -> Request:
    limit = 2**31 - 64 if case.has("long positions") else 4096
    seen = torch.rand(case.vocab_size, generator=noise)
    counts = torch.randint(1, 4, seen.shape, generator=noise, dtype=torch.int32)
    return Request(
        params=params,
        target_logits=target,
        draft_logits=draft[:-1],
        draft_token_ids=(),
        position=int(torch.randint(0, limit, (), generator=noise)),
        in_prompt=seen < 0.3,
        output_counts=torch.where((seen > 0.2) & (seen < 0.5), counts, 0),
    )


def _draft_vocabulary(
    case: Case, logits: Tensor, noise: torch.Generator
) -> tuple[Tensor | None, Tensor]:
    vocab_size = case.vocab_size
    if case.drafter == "narrower":
        return None, logits[:, : max(1, 2 * vocab_size // 3)]
    if case.drafter not in ("mapped", "permuted"):
        return None, logits
    id_map = torch.randperm(vocab_size, generator=noise)
    if case.drafter == "mapped":
        id_map = id_map[: (vocab_size + 1) // 2].sort().values
    return id_map, logits[:, id_map]


def _finished(case: Case, rows: Tensor, bad: str, noise: torch.Generator) -> Tensor:
    """Mask and spoil."""
    if case.has("masked") and len(rows):
        rows = mask(rows, noise)
    if case.has(bad):
        rows = rows.clone()
        spoil(rows, noise)
    return rows


def _layout(case: Case, noise: torch.Generator) -> Layout:
    num_reqs, is_spread = len(case.num_draft_tokens), case.has("strides")
    slots = torch.randperm(num_reqs + 2, generator=noise)[:num_reqs].tolist()
    return Layout(
        slots=tuple(slots) if case.has("slots") else None,
        spare_slots=int(case.has("slots")),
        spare_drafts=2 * case.has("room"),
        gap=int(torch.randint(1, 9, (), generator=noise)) if is_spread else 0,
        id_dtype=getattr(torch, case.id_dtype),
        integer_stride=1 + is_spread,
    )
