"""From a case to requests and a layout: what the models said. Drafts are yet to be made.

Requests may be asked again in another batch, in which each must keep its answer (`varied`).
"""

import numpy as np
import torch
from attrs import evolve
from torch import Tensor

from ...core.sampling_params import SamplingParams
from .case import Case
from .logits import allowed_tokens, draft_logits, mask, spoil, target_logits
from .params import all_params
from .requests import Inputs, Layout, Request

Varied = tuple[Inputs, list[int | None]]
"""The batch, and which request of the first batch each is; None for a stranger."""

ALSO_OF_STRANGERS = frozenset(
    ("bad target rows", "bad draft rows", "bad ids", "greedy", "top-k", "top-p", "bias")
)


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


def varied(inputs: Inputs) -> Varied:
    """What the case's variation makes of a batch; the same batch if there is none."""
    rng = np.random.default_rng((inputs.case.seed, 2))
    count = len(inputs.requests)
    if inputs.case.variation == "in part":
        chosen = rng.permutation(count)[: rng.integers(count + 1)].tolist()
        requests = tuple(inputs.requests[request] for request in chosen)
        return evolve(inputs, requests=requests, layout=_any_layout(len(chosen), rng)), chosen
    if inputs.case.variation == "among strangers":
        return _among_strangers(inputs, rng)
    return inputs, [*range(count)]


def _any_layout(count: int, rng: np.random.Generator) -> Layout:
    spare_drafts, spare_rows, gap, spare_slots = rng.integers(0, 4, size=4).tolist()
    return Layout(
        slots=tuple(rng.permutation(count + 3)[:count].tolist()),
        spare_drafts=spare_drafts,
        spare_rows=spare_rows,
        gap=gap,
        spare_slots=spare_slots,
    )


def _among_strangers(inputs: Inputs, rng: np.random.Generator) -> Varied:
    """Keep about half of the requests; the others become longer, different and partly broken."""
    case, count = inputs.case, max(len(inputs.requests), 1)
    other = evolve(
        case,
        seed=case.seed ^ 1,
        num_draft_tokens=tuple(rng.integers(0, 5, size=count).tolist()),
        features=case.features | ALSO_OF_STRANGERS,
    )
    strangers = make_inputs(other).with_arbitrary_drafts().requests
    stays = [place < len(inputs.requests) and rng.random() < 0.5 for place in range(count)]
    requests = [inputs.requests[p] if stay else strangers[p] for p, stay in enumerate(stays)]
    varied = evolve(inputs, requests=tuple(requests), layout=Layout())
    return varied, [place if stay else None for place, stay in enumerate(stays)]
