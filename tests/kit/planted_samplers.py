"""A rejection sampler of many steps at once, correct or with one planted mistake, for the audit.

It draws as engines do: by races of exponentials or, where stated, from cumulative sums.
"""

from collections.abc import Callable

import torch
from torch import Tensor

MISTAKES = {
    "shared noise": "shared noise of draft and verification",
    "residual p": "wrong residual: p",
    "residual unsubtracted": "wrong residual: p where p > q",
    "residual one-hot": "wrong residual: as if q were one-hot",
    "argmax drafts": "q that was not drawn from: drafts by argmax",
    "argmax drafts, raw q": "q that was not drawn from: drafts by argmax",
    "one uniform": "one uniform for accepting and recovering",
    "raw p": "temperature on one side only: not in p",
    "raw q": "temperature on one side only: not in q",
    "raw p, greedy path": "temperature on one side only: not in p",
    "raw q, greedy path": "temperature on one side only: not in q",
    "first row": "bonus from the wrong row",
    "row before": "bonus from the wrong row",
    "next rows": "all rows off by one",
    "greedy draft, sampled target": "greedy row on the sampled path",
    "never greedy": "greedy row on the sampled path",
}
"""Planted mistake -> the audit's name for it."""


def planted(mistake: str = "") -> Callable[[Tensor, Tensor, float, int], Tensor]:
    """The sampler with this mistake, one of `MISTAKES`; without one it is correct."""

    def step(target: Tensor, draft: Tensor, temperature: float, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        never_greedy = temperature or 1.0
        drawn_at = never_greedy if mistake == "never greedy" else temperature
        tested_at = 1.0 if mistake in ("raw q", "argmax drafts, raw q") else drawn_at
        tested_at = float(temperature > 0) if mistake == "raw q, greedy path" else tested_at
        sampled = mistake in ("never greedy", "greedy draft, sampled target")
        p_at = 1.0 if mistake == "raw p" else never_greedy if sampled else temperature
        p_at = float(temperature > 0) if mistake == "raw p, greedy path" else p_at
        p = _law(target, p_at)
        p = p.roll(-1, dims=1) if mistake == "next rows" else p
        q, noise = _law(draft, tested_at), _exponentials(draft, generator)
        drafts = (_law(draft, drawn_at) / noise).argmax(-1)
        drafts = draft.argmax(-1) if mistake.startswith("argmax") else drafts
        rows, (of_p, of_q) = drafts[..., None], (p[:, :-1], q)
        uniform = torch.rand(drafts.shape, generator=generator, dtype=torch.float64)
        chance = (of_p.gather(2, rows) / of_q.gather(2, rows)).squeeze(2)
        accepted = (uniform < chance).long().cumprod(1).sum(1)
        left = _residual(mistake, of_p, of_q, rows)
        noise = noise if mistake == "shared noise" else _exponentials(draft, generator)
        recovered = (left / noise).argmax(-1)
        if mistake == "one uniform":
            ends = (left / left.sum(-1, keepdim=True)).cumsum(-1)
            recovered = (ends <= uniform[..., None]).sum(-1).clamp(max=p.shape[-1] - 1)
        row = {"row before": -2, "first row": 0}.get(mistake, -1)
        of_bonus = p[:, [row]]
        bonus = (of_bonus / _exponentials(of_bonus, generator)).argmax(-1)
        places = torch.arange(p.shape[1])
        final = torch.cat((recovered, bonus), 1).where(places == accepted[:, None], -1)
        return torch.cat((drafts, bonus), 1).where(places < accepted[:, None], final)

    return step


def _law(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        one_hot = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1])
        return one_hot.double()
    return (logits.double() / temperature).softmax(-1)


def _exponentials(logits: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty(logits.shape, dtype=torch.float64).exponential_(generator=generator)


def _residual(mistake: str, p: Tensor, q: Tensor, rows: Tensor) -> Tensor:
    if mistake == "residual p":
        return p
    if mistake == "residual unsubtracted":
        return p.where(p > q, 0.0)
    if mistake == "residual one-hot":
        return p.scatter(2, rows, 0.0)
    left = (p - q).clamp(min=0)
    return left.where(left.sum(-1, keepdim=True) > 0, p)
