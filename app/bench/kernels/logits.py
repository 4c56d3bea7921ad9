"""Logits of several kinds, from a language model's to a kernel's worst case."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from attrs import frozen
from torch import Tensor

from .workload import DTYPES, Workload

LM_SCALE, NUM_PEAKS, LOWEST_PEAK, HIGHEST_PEAK = 2.0, 8, 6.0, 20.0
ZIPF_EXPONENT, ZIPF_NOISE = 1.1, 0.5
SHARP_HEIGHT = 40.0
TIES_SCALE = 2.0
BAD_VALUES = (torch.nan, torch.inf, -torch.inf, 0.0)
DRAFT_NOISE = 0.7

Shape = tuple[int, int]
"""[num_rows, vocab_size]."""


def _normal(shape: Shape, noise: torch.Generator, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=noise, device=noise.device).mul_(scale)


def _lm(shape: Shape, noise: torch.Generator) -> Tensor:
    rows = _normal(shape, noise, LM_SCALE)
    places = (shape[0], NUM_PEAKS)
    where = torch.randint(shape[1], places, generator=noise, device=noise.device)
    heights = torch.empty(places, device=noise.device)
    heights.uniform_(LOWEST_PEAK, HIGHEST_PEAK, generator=noise)
    return rows.scatter_add_(1, where, heights)


def _zipf(shape: Shape, noise: torch.Generator) -> Tensor:
    ranks = 1 + torch.randperm(shape[1], generator=noise, device=noise.device)
    return _normal(shape, noise, ZIPF_NOISE).sub_(ranks.log(), alpha=ZIPF_EXPONENT)


def _sharp(shape: Shape, noise: torch.Generator) -> Tensor:
    rows = _normal(shape, noise)
    where = torch.randint(shape[1], (shape[0], 1), generator=noise, device=noise.device)
    return rows.scatter_(1, where, SHARP_HEIGHT)


def _ties(shape: Shape, noise: torch.Generator) -> Tensor:
    return _normal(shape, noise, TIES_SCALE).round_()


def _bad(shape: Shape, noise: torch.Generator) -> Tensor:
    rows = _normal(shape, noise)
    for first, value in enumerate(BAD_VALUES):
        rows[first :: len(BAD_VALUES)] = value
    return rows


KINDS: Mapping[str, Callable[[Shape, torch.Generator], Tensor]] = MappingProxyType(
    {"lm": _lm, "zipf": _zipf, "flat": _normal, "sharp": _sharp, "ties": _ties, "bad": _bad}
)
"""Target rows by the name of the kind, float32:

- lm: N(0, 2²) with eight peaks of 6 to 20;
- zipf: Zipf 1.1 log-probabilities and N(0, 0.5²), token ids permuted;
- flat: N(0, 1);
- sharp: N(0, 1) and one token at 40;
- ties: N(0, 2²) rounded to integers;
- bad: rows of NaN, of infinity, of minus infinity and of equal logits in turn.
"""

MIXED = tuple(kind for kind in KINDS if kind != "bad")


@frozen(eq=False)
class Logits:
    """What two models said about one batch.

    Attributes:
        target: [num_reqs, K + 1, vocab_size].
        draft: [num_reqs, K, vocab_size], the target's and N(0, 0.7²); rounded where it ties.
    """

    target: Tensor
    draft: Tensor

    @classmethod
    def random(cls, workload: Workload, noise: torch.Generator) -> "Logits":
        """Rows of the workload's kind; `mixed` takes those of `MIXED` in turn, row by row."""
        num_reqs, num_rows = workload.num_reqs, workload.num_spec_tokens + 1
        vocab_size, dtype = workload.vocab_size, DTYPES[workload.dtype]
        target = torch.empty((num_reqs * num_rows, vocab_size), dtype=dtype, device=noise.device)
        near = torch.empty_like(target)
        kinds = MIXED if workload.inputs == "mixed" else (workload.inputs,)
        for place, kind in enumerate(kinds):
            rows = target[place :: len(kinds)]
            drawn = KINDS[kind]((len(rows), vocab_size), noise)
            rows.copy_(drawn)
            drawn.add_(_normal((len(rows), vocab_size), noise, DRAFT_NOISE))
            near[place :: len(kinds)] = drawn.round_() if kind == "ties" else drawn
        shape = (num_reqs, num_rows, vocab_size)
        # Nothing is drafted behind the last row.
        return cls(target.view(shape), near.view(shape)[:, :-1].contiguous())
