"""Turns a case into requests with logits, and a layout. Drafts are made later.

`varied` puts requests into another batch, in which each must get the same answer.
"""

from functools import partial

import numpy as np
import torch
from attrs import evolve
from torch import Tensor

from ...core.sampling_params import SamplingParams
from .case import LOGITS, Case, Numbers
from .params import all_params
from .requests import Inputs, Layout, Request

ALSO_OF_STRANGERS = frozenset(
    ("bad target rows", "bad draft rows", "bad ids", "greedy", "top-k", "top-p", "bias")
)


def make_inputs(case: Case) -> Inputs:
    """Make the inputs that a case describes."""
    noise = torch.Generator().manual_seed(case.seed)
    lengths = [length + 1 for length in case.num_draft_tokens]
    rows = _target_logits(case, sum(lengths), noise)
    id_map, drafted = _draft_vocabulary(case, _draft_logits(case, rows, noise), noise)
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
        allowed=_allowed_tokens(case, len(target), noise),
    )


def _draft_vocabulary(
    case: Case, logits: Tensor, noise: torch.Generator
) -> tuple[Tensor | None, Tensor]:
    if case.drafter not in ("mapped", "permuted"):
        narrower = max(1, 2 * case.vocab_size // 3)
        return None, logits[:, : narrower if case.drafter == "narrower" else None]
    id_map = torch.randperm(case.vocab_size, generator=noise)
    if case.drafter == "mapped":
        id_map = id_map[: (case.vocab_size + 1) // 2].sort().values
    return id_map, logits[:, id_map]


def _finished(case: Case, rows: Tensor, bad: str, noise: torch.Generator) -> Tensor:
    """Add masks, and make about one row in ten unusable: by NaN, by +inf, or with only -inf."""
    if case.has("masked") and len(rows):
        rows = _mask(rows, noise)
    if case.has(bad):
        rows, ids = rows.clone(), _any_ids(rows, noise)
        kinds = torch.randint(0, 30, (len(rows),), generator=noise)
        for kind, value in enumerate((torch.nan, torch.inf)):
            rows[kinds == kind, ids[kinds == kind]] = value
        rows[kinds == 2] = -torch.inf
    return rows


def _target_logits(case: Case, num_rows: int, noise: torch.Generator) -> Tensor:
    """[num_rows, vocab_size] float32."""
    if case.logits != "mixed":
        return _rows(case, case.logits, num_rows, noise)
    # All kinds but "mixed" itself.
    kinds = LOGITS[:-1]
    rows = [_rows(case, kinds[row % len(kinds)], 1, noise) for row in range(num_rows)]
    return torch.cat([torch.empty(0, case.vocab_size), *rows])


def _rows(case: Case, kind: str, num_rows: int, noise: torch.Generator) -> Tensor:
    normal = torch.randn((num_rows, case.vocab_size), generator=noise)
    scale = 1.0
    if kind not in ("sharp", "zipf") and int(torch.randint(2, (), generator=noise)):
        scale = 1 / 64
    if kind == "huge":
        return normal.clamp(-1, 1) * torch.finfo(getattr(torch, case.dtype)).max
    rows = target_rows(kind, normal, noise)
    return rows * scale if kind == "flat" else rows


def target_rows(kind: str, normal: Tensor, noise: torch.Generator) -> Tensor:
    """One of `LOGITS`, of N(0, 1) [num_rows, vocab_size] on the noise's device."""
    uniform = partial(torch.rand, normal.shape, generator=noise, device=noise.device)
    one = torch.ones_like(normal[:, :1])
    return {
        "lm": lambda: _with_peaks(normal * 2, noise),
        "zipf": lambda: normal / 2 - 1.1 * (uniform().argsort(dim=-1) + 1).log(),
        "flat": lambda: normal,
        "sharp": lambda: normal.scatter_add(1, _any_ids(normal, noise)[:, None], 40 * one),
        "ties": lambda: torch.round(normal * 2),
        "constant": lambda: torch.zeros_like(normal),
        # Weights of exactly 1 at different logits.
        "even": lambda: 1e-30 * uniform().argsort(dim=-1),
        "large": lambda: normal * 500,
    }[kind]()


def _with_peaks(rows: Tensor, noise: torch.Generator) -> Tensor:
    """Raise eight logits of each row, or all if it has fewer, by 6 to 20."""
    places = torch.stack([_any_ids(rows, noise) for _ in range(min(8, rows.shape[1]))], dim=1)
    heights = 6 + 14 * torch.rand(places.shape, generator=noise, device=noise.device)
    return rows.scatter_add(1, places, heights)


def _draft_logits(case: Case, target: Tensor, noise: torch.Generator) -> Tensor:
    """The target's rows plus noise: [num_rows, vocab_size] float32."""
    if case.has("equal drafter"):
        return target.clone()
    blur = torch.randn(target.shape, generator=noise)
    if case.logits == "ties":
        blur = blur.round()
    blur = blur * (1 / 128 if case.has("close drafter") else 0.7)
    if case.logits in ("large", "huge", "mixed"):
        # Small noise changes nothing in rows that span thousands.
        return target * (1 - 0.3 * blur.clamp(-1, 1).abs())
    return target + blur


def _mask(logits: Tensor, noise: torch.Generator) -> Tensor:
    """Ban some tokens by -inf or the lowest float, never all tokens of a row."""
    banned = torch.rand(logits.shape, generator=noise) < 0.4
    by_infinity = torch.rand((len(logits), 1), generator=noise) < 0.7
    values = torch.where(by_infinity, -torch.inf, torch.finfo(torch.float16).min)
    banned[torch.arange(len(logits)), _any_ids(logits, noise)] = False
    return torch.where(banned, values, logits)


def _allowed_tokens(case: Case, num_rows: int, noise: torch.Generator) -> tuple[Tensor | None, ...]:
    """A mask for each row: [vocab_size] bool of many, few, one or no tokens; or None."""
    if not case.has("allowed tokens"):
        return (None,) * num_rows
    shares = torch.tensor((0.0, 0.02, 0.3, 0.9, 0.98))
    chosen = shares[torch.randint(0, len(shares), (num_rows, 1), generator=noise)]
    flags = torch.rand(num_rows, case.vocab_size, generator=noise) < chosen
    # Nearly all rows allow some token.
    some = torch.rand(num_rows, generator=noise) < 0.97
    flags[torch.arange(num_rows), _any_ids(flags, noise)] |= some
    # In other cases every row has a mask, so that rows need not name theirs.
    absent = torch.rand(num_rows, generator=noise) < (0.2 if case.has("strides") else 0.0)
    return tuple(None if none else mask for none, mask in zip(absent.tolist(), flags, strict=True))


def _any_ids(logits: Tensor, noise: torch.Generator) -> Tensor:
    places = (len(logits),)
    return torch.randint(0, logits.shape[-1], places, generator=noise, device=noise.device)


def _layout(case: Case, noise: torch.Generator) -> Layout:
    num_reqs = len(case.num_draft_tokens)
    slots = torch.randperm(num_reqs + 2, generator=noise)[:num_reqs].tolist()
    shape = case.shaping(np.random.default_rng((case.seed, 6)), 3)
    return Layout(
        slots=tuple(slots) if case.has("slots") else None,
        spare_slots=int(case.has("slots")),
        spare_drafts=2 * case.has("room"),
        gap=int(shape.integers(1, 9)) if case.has("strides") else 0,
    )


def varied(inputs: Inputs) -> tuple[Inputs, list[int | None]]:
    """Apply the case's variation to a batch; without one, return the same batch.

    Returns:
        The batch, and for each request its index in the first batch; None for a stranger.
    """
    rng = np.random.default_rng((inputs.case.seed, 2))
    shape = inputs.case.shaping(rng, 2)
    count = len(inputs.requests)
    if inputs.case.variation == "in part":
        spare, share = shape.integers(0, 4, size=4).tolist(), shape.random()
        chosen = rng.permutation(np.flatnonzero(shape.random(count) < share)).tolist()
        requests = tuple(inputs.requests[request] for request in chosen)
        slots = rng.permutation(len(chosen) + 3)[: len(chosen)].tolist()
        return evolve(inputs, requests=requests, layout=Layout(tuple(slots), *spare)), chosen
    if inputs.case.variation == "among strangers":
        return _among_strangers(inputs, shape)
    return inputs, [*range(count)]


def _among_strangers(inputs: Inputs, rng: Numbers) -> tuple[Inputs, list[int | None]]:
    """Keep about half of the requests; replace the others by longer, partly broken ones."""
    case, draws = inputs.case, rng.random((len(inputs.requests), 2))
    other = evolve(
        case,
        seed=case.seed ^ 1,
        num_draft_tokens=tuple(int(5 * length) for length, _ in draws),
        features=case.features | ALSO_OF_STRANGERS,
    )
    strangers = make_inputs(other).with_arbitrary_drafts().requests
    origins = [place if draw < 0.5 else None for place, (_, draw) in enumerate(draws)]
    pairs = zip(origins, inputs.requests, strangers, strict=True)
    requests = tuple(theirs if origin is None else mine for origin, mine, theirs in pairs)
    return evolve(inputs, requests=requests, layout=Layout()), origins
