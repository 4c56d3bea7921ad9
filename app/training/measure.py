"""What a pair is worth: held-out loss, and how much of the target's law the draft covers.

Measures logits in fp32 from the weights that ship; it times nothing.
"""

from __future__ import annotations

import math

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from .models import logits_of

_ROWS_AT_ONCE = 8


@frozen
class Agreement:
    """Means over positions of text that the target wrote at this temperature.

    overlap: Σ min(p, q), the chance that probabilistic verification accepts a draft token.
    coincidence: Σ p·q, the chance that two independent draws are equal (strict verification).
    top_1: the share of positions where both have the same most probable token.
    """

    temperature: float
    overlap: float
    coincidence: float
    top_1: float


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, rows: Tensor) -> float:
    """Mean loss over the tokens of `covering_rows`, in nats per token."""
    total = 0.0
    for part in rows.split(_ROWS_AT_ONCE):
        logits = logits_of(model, part)[:, :-1].flatten(0, 1)
        targets = part[:, 1:].flatten()
        total += cross_entropy(logits, targets, ignore_index=-1, reduction="sum").item()
    return total / int((rows[:, 1:] >= 0).sum())


def bits_per_byte(nats_per_token: float, num_tokens: int, num_bytes: int) -> float:
    """The same loss per byte of text, comparable between tokenizers."""
    return nats_per_token * num_tokens / num_bytes / math.log(2)


@torch.no_grad()
def measure_agreement(
    target: LlamaForCausalLM, draft: LlamaForCausalLM, rows: Tensor, temperature: float
) -> Agreement:
    """Compare both laws at every position of rows: [num_rows, length], which the target wrote."""
    sums = torch.zeros(3, dtype=torch.float64, device=rows.device)
    for part in rows.split(_ROWS_AT_ONCE):
        p = (logits_of(target, part) / temperature).softmax(-1)
        q = (logits_of(draft, part) / temperature).softmax(-1)
        same = (p.argmax(-1) == q.argmax(-1)).sum()
        sums += torch.stack([torch.minimum(p, q).sum(), (p * q).sum(), same])
    overlap, coincidence, top_1 = (sums / rows.numel()).tolist()
    return Agreement(temperature, overlap, coincidence, top_1)
