"""Measures a pair of models: held-out loss, and how much of the target's law the draft covers.

Logits are computed in float32 from the weights that ship.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lab.pair.text import END_OF_TEXT_ID

_ROWS_AT_ONCE = 8
AGREEMENT = ("overlap", "coincidence", "top_1")


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """tokens: [rows, length] to raw logits: [rows, length, vocab_size]; -1 reads as END_OF_TEXT."""
    logits: Tensor = model(input_ids=tokens.clamp(min=0), use_cache=False).logits
    return logits


@torch.no_grad()
def write_rows(model: nn.Module, temperatures: Tensor, length: int) -> Tensor:
    """Rows that begin with END_OF_TEXT and go on by the model's own draws: [num_rows, length].

    temperatures: [num_rows]. Draws use torch's global generator. END_OF_TEXT does not stop a row,
    since the training stream goes on after it, too.
    """
    rows = temperatures.new_full((len(temperatures), length), END_OF_TEXT_ID, dtype=torch.int64)
    cache = None
    for place in range(length - 1):
        output = model(input_ids=rows[:, place, None], past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        weights = (output.logits[:, 0].float() / temperatures[:, None]).softmax(-1)
        rows[:, place + 1] = (weights / torch.empty_like(weights).exponential_()).argmax(-1)
    return rows


@torch.no_grad()
def held_out_loss(model: nn.Module, rows: Tensor) -> float:
    """Mean loss over the tokens of `TokenStream.covering_rows`, in nats per token."""
    total = 0.0
    for part in rows.split(_ROWS_AT_ONCE):
        logits = logits_of(model, part)[:, :-1].flatten(0, 1)
        targets = part[:, 1:].flatten()
        total += cross_entropy(logits, targets, ignore_index=-1, reduction="sum").item()
    return total / int((rows[:, 1:] >= 0).sum())


@torch.no_grad()
def measure_agreement(
    target: nn.Module, draft: nn.Module, rows: Tensor, temperature: float
) -> dict[str, float]:
    """Compare both laws, p and q, at every position of rows [num_rows, length] of the target's.

    Means of Σ min(p, q), the chance that probabilistic verification accepts a draft token; of
    Σ p·q, the chance that two independent draws are equal (strict verification); and the share of
    positions where both have the same most probable token.
    """
    sums = torch.zeros(3, dtype=torch.float64, device=rows.device)
    for part in rows.split(_ROWS_AT_ONCE):
        p = (logits_of(target, part) / temperature).softmax(-1)
        q = (logits_of(draft, part) / temperature).softmax(-1)
        same = (p.argmax(-1) == q.argmax(-1)).sum()
        sums += torch.stack([torch.minimum(p, q).sum(), (p * q).sum(), same])
    means = (sums / rows.numel()).tolist()
    return {"temperature": temperature, **dict(zip(AGREEMENT, means, strict=True))}
