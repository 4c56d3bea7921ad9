"""Rows of logits of every character, from a seeded generator; refuses to keep a state."""

import torch
from torch import Tensor

from .case import Case


def target_logits(case: Case, num_rows: int, noise: torch.Generator) -> Tensor:
    """[num_rows, vocab_size] float32."""
    shape = (num_rows, case.vocab_size)
    normal = torch.randn(shape, generator=noise)
    match case.logits:
        case "peaked":
            return normal + _peaks(shape, noise)
        case "flat":
            return normal / 64
        case "ties":
            return (normal * 1.5).round()
        case "constant":
            return torch.zeros(shape)
        case "large":
            return normal * 500
    return normal * 2


def draft_logits(case: Case, target: Tensor, noise: torch.Generator) -> Tensor:
    """The target's rows, blurred: [num_rows, vocab_size] float32."""
    if case.has("equal drafter"):
        return target.clone()
    blur = torch.randn(target.shape, generator=noise)
    if case.logits == "ties":
        blur = blur.round()
    if case.logits == "large":
        blur = blur * 300
    return target + blur * (1 / 128 if case.has("close drafter") else 0.7)


def mask(logits: Tensor, noise: torch.Generator) -> Tensor:
    """Ban some tokens by -inf or the lowest float, never all tokens of a row."""
    banned = torch.rand(logits.shape, generator=noise) < 0.4
    by_infinity = torch.rand((len(logits), 1), generator=noise) < 0.7
    values = torch.where(by_infinity, -torch.inf, torch.finfo(torch.float16).min)
    banned[torch.arange(len(logits)), _any_ids(logits, noise)] = False
    return torch.where(banned, values, logits)


def spoil(rows: Tensor, noise: torch.Generator) -> None:
    """Make about one row in ten unusable, in place: NaN, +inf, or nothing but -inf."""
    ids = _any_ids(rows, noise)
    kinds = torch.randint(0, 30, (len(rows),), generator=noise).tolist()
    for row, kind, token_id in zip(rows, kinds, ids.tolist(), strict=True):
        if kind == 0:
            row[token_id] = torch.nan
        elif kind == 1:
            row[token_id] = torch.inf
        elif kind == 2:
            row[:] = -torch.inf


def _any_ids(logits: Tensor, noise: torch.Generator) -> Tensor:
    return torch.randint(0, logits.shape[-1], (len(logits),), generator=noise)


def _peaks(shape: tuple[int, int], noise: torch.Generator) -> Tensor:
    heights = 6 + 14 * torch.rand(shape, generator=noise)
    chosen = torch.rand(shape, generator=noise) < 8 / max(shape[1], 8)
    return torch.where(chosen, heights, 0.0)
