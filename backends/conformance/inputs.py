"""From a case to tensors: what the models said, before anything was drafted.

It refuses to draw drafts: see `drafting`.
"""

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ...core.sampling_params import SamplingParams
from ...core.token_counts import TokenCounts
from .case import Case
from .random_logits import draft_logits, mask, spoil, target_logits
from .random_params import all_params


@frozen(eq=False)
class Inputs:
    """Everything but the drafts of one batch, on one device.

    Attributes:
        target_logits: [num_logits, V].
        cu_num_logits: [num_reqs + 1].
        positions: [num_reqs].
        draft_logits: [num_slots, places, draft V].
        slot_ids: [num_reqs].
        draft_to_target: [draft V], or None for the same ids.
        token_counts: of every slot.
        wishes: each request's parameters.
    """

    target_logits: Tensor
    cu_num_logits: Tensor
    positions: Tensor
    draft_logits: Tensor
    slot_ids: Tensor
    draft_to_target: Tensor | None
    token_counts: TokenCounts
    wishes: tuple[SamplingParams, ...]


def make_inputs(case: Case, device: torch.device) -> Inputs:
    """The tensors that a case stands for."""
    noise = torch.Generator().manual_seed(case.seed)
    num_reqs = len(case.num_draft_tokens)
    places = max(case.num_draft_tokens, default=0) + 2 * case.has("room")
    num_slots = num_reqs + 2 * case.has("slots")
    slots = torch.arange(num_reqs)
    if case.has("slots"):
        slots = torch.randperm(num_slots, generator=noise)[:num_reqs]
    lengths = [k + 1 for k in case.num_draft_tokens]
    rows = target_logits(case, sum(lengths), noise)
    id_map, drafted = _draft_vocabulary(case, draft_logits(case, rows, noise), noise)
    cache = torch.full((num_slots, places, drafted.shape[1]), torch.nan)
    for slot, of_request in zip(slots.tolist(), drafted.split(lengths), strict=True):
        cache[slot, : len(of_request) - 1] = of_request[:-1]
    ids = getattr(torch, case.id_dtype)
    return Inputs(
        target_logits=_finish(case, rows, case.dtype, "bad target rows", noise, device),
        cu_num_logits=_lay_out(case, torch.tensor([0, *np.cumsum(lengths)]).to(device, ids)),
        positions=_lay_out(case, _positions(case, num_reqs, noise).to(device, ids)),
        draft_logits=_finish(case, cache, case.draft_dtype, "bad draft rows", noise, device),
        slot_ids=_lay_out(case, slots.to(device, ids)),
        draft_to_target=None if id_map is None else id_map.to(device),
        token_counts=_token_counts(case, num_slots, noise, device),
        wishes=all_params(case),
    )


def _draft_vocabulary(
    case: Case, logits: Tensor, noise: torch.Generator
) -> tuple[Tensor | None, Tensor]:
    vocab_size = case.vocab_size
    match case.drafter:
        case "narrower":
            return None, logits[:, : max(1, 2 * vocab_size // 3)]
        case "mapped":
            id_map = torch.randperm(vocab_size, generator=noise)[: (vocab_size + 1) // 2]
            id_map = id_map.sort().values
            return id_map, logits[:, id_map]
        case "permuted":
            id_map = torch.randperm(vocab_size, generator=noise)
            return id_map, logits[:, id_map]
    return None, logits


def _finish(
    case: Case,
    logits: Tensor,
    dtype: str,
    bad: str,
    noise: torch.Generator,
    device: torch.device,
) -> Tensor:
    """Mask, spoil, round to the dtype and lay out with gaps that hold NaN."""
    rows = logits.flatten(0, -2)
    if case.has("masked") and len(rows):
        rows = mask(rows, noise)
    if case.has(bad):
        rows = rows.clone()
        spoil(rows, noise)
    gap = int(torch.randint(1, 9, (), generator=noise)) if case.has("strides") else 0
    wide = torch.full((*logits.shape[:-1], logits.shape[-1] + gap), torch.nan)
    wide[..., : logits.shape[-1]] = rows.view(logits.shape)
    return wide.to(device, getattr(torch, dtype))[..., : logits.shape[-1]]


def _lay_out(case: Case, integers: Tensor) -> Tensor:
    """With gaps that hold zeros."""
    if not case.has("strides"):
        return integers
    wide = torch.stack((integers, torch.zeros_like(integers)), 1)
    return wide[:, 0]


def _positions(case: Case, num_reqs: int, noise: torch.Generator) -> Tensor:
    limit = 2**31 - 32 if case.has("long positions") else 4096
    return torch.randint(0, limit, (num_reqs,), generator=noise)


def _token_counts(
    case: Case, num_slots: int, noise: torch.Generator, device: torch.device
) -> TokenCounts:
    shape = (num_slots, case.vocab_size)
    seen = torch.rand(shape, generator=noise)
    counts = torch.randint(1, 4, shape, generator=noise, dtype=torch.int32)
    return TokenCounts(
        prompt_mask=(seen < 0.3).to(device),
        output_counts=torch.where((seen > 0.2) & (seen < 0.5), counts, 0).to(device),
    )
