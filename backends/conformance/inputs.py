"""From a case to requests and a layout: what the models said. Drafts are yet to be made."""

import torch
from torch import Tensor

from ...core.sampling_params import SamplingParams
from .case import Case
from .logits import allowed_tokens, draft_logits, mask, spoil, target_logits
from .params import all_params
from .requests import Inputs, Layout, Request


def make_inputs(case: Case) -> Inputs:
    """What a case stands for."""
    noise = torch.Generator().manual_seed(case.seed)
    lengths = [length + 1 for length in case.num_draft_tokens]
    rows = target_logits(case, sum(lengths), noise)
    id_map, drafted = _draft_vocabulary(case, draft_logits(case, rows, noise), noise)
    target = _finished(case, rows, "bad target rows", noise).to(getattr(torch, case.dtype))
    draft = _finished(case, drafted, "bad draft rows", noise).to(getattr(torch, case.draft_dtype))
    rows_of = zip(all_params(case), target.split(lengths), draft.split(lengths), strict=True)
    requests = tuple(_request(case, *each, noise) for each in rows_of)
    return Inputs(case, requests, _layout(case, noise), id_map)


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
        allowed=allowed_tokens(case, len(target), noise),
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
        integer_stride=1 + is_spread,
        shares_masks=is_spread,
    )
