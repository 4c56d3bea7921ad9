"""Rows of logits of every kind, from a seeded generator."""

import torch
from torch import Tensor

from .case import LOGITS, Case

ALL_KINDS = LOGITS[:-1]


def target_logits(case: Case, num_rows: int, noise: torch.Generator) -> Tensor:
    """[num_rows, vocab_size] float32."""
    if case.logits != "mixed":
        return _rows(case, case.logits, num_rows, noise)
    rows = [_rows(case, ALL_KINDS[row % len(ALL_KINDS)], 1, noise) for row in range(num_rows)]
    return torch.cat([torch.empty(0, case.vocab_size), *rows])


def _rows(case: Case, kind: str, num_rows: int, noise: torch.Generator) -> Tensor:
    shape = (num_rows, case.vocab_size)
    normal = torch.randn(shape, generator=noise)
    if kind == "sharp":
        tokens = _any_ids(normal, noise)[:, None]
        return normal.scatter_add(1, tokens, torch.full_like(normal[:, :1], 25.0))
    if kind == "zipf":
        ranks = torch.rand(shape, generator=noise).argsort(dim=-1) + 1
        return normal / 2 - 1.1 * ranks.log()
    scale = 1 / 64 if int(torch.randint(2, (), generator=noise)) else 1.0
    largest = torch.finfo(getattr(torch, case.dtype)).max
    return {
        "lm": lambda: normal * 2 + _peaks(shape, noise),
        "flat": lambda: normal * scale,
        "ties": lambda: torch.round(normal * 1.5),
        "constant": lambda: torch.zeros(shape),
        # Weights of exactly 1 at different logits.
        "even": lambda: 1e-30 * torch.rand(shape, generator=noise).argsort(dim=-1),
        "large": lambda: normal * 500,
        "huge": lambda: normal.clamp(-1, 1) * largest,
    }[kind]()


def draft_logits(case: Case, target: Tensor, noise: torch.Generator) -> Tensor:
    """The target's rows, blurred: [num_rows, vocab_size] float32."""
    if case.has("equal drafter"):
        return target.clone()
    blur = torch.randn(target.shape, generator=noise)
    if case.logits == "ties":
        blur = blur.round()
    blur = blur * (1 / 128 if case.has("close drafter") else 0.7)
    if case.logits in ("large", "huge", "mixed"):
        # Of rows that span thousands a small blur changes nothing.
        return target * (1 - 0.3 * blur.clamp(-1, 1).abs())
    return target + blur


def mask(logits: Tensor, noise: torch.Generator) -> Tensor:
    """Ban some tokens by -inf or the lowest float, never all tokens of a row."""
    banned = torch.rand(logits.shape, generator=noise) < 0.4
    by_infinity = torch.rand((len(logits), 1), generator=noise) < 0.7
    values = torch.where(by_infinity, -torch.inf, torch.finfo(torch.float16).min)
    banned[torch.arange(len(logits)), _any_ids(logits, noise)] = False
    return torch.where(banned, values, logits)


def allowed_tokens(case: Case, num_rows: int, noise: torch.Generator) -> tuple[Tensor | None, ...]:
    """A mask for each row, [vocab_size] bool, of many, few, one or no tokens; None without one."""
    if not case.has("allowed tokens"):
        return (None,) * num_rows
    shares = torch.tensor((0.0, 0.02, 0.3, 0.9, 0.98))
    chosen = shares[torch.randint(0, len(shares), (num_rows, 1), generator=noise)]
    flags = torch.rand(num_rows, case.vocab_size, generator=noise) < chosen
    # Nearly all rows allow a token.
    some = torch.rand(num_rows, generator=noise) < 0.97
    flags[torch.arange(num_rows), _any_ids(flags, noise)] |= some
    # Elsewhere each row has one, so that none needs to be named.
    absent = torch.rand(num_rows, generator=noise) < (0.2 if case.has("strides") else 0.0)
    return tuple(None if none else mask for none, mask in zip(absent.tolist(), flags, strict=True))


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
