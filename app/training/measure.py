"""What a pair is worth: held-out loss, and how much of the target's law the draft covers.

Measures logits in fp32 from the weights that ship; it times nothing.
"""

from __future__ import annotations

import math

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, LlamaForCausalLM

from .models import logits_of
from .tokenizer import END_OF_TEXT_ID

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


@torch.no_grad()
def sample_rows(
    model: LlamaForCausalLM, prompts: Tensor, temperatures: Tensor, length: int
) -> Tensor:
    """Continue prompts: [num_rows, prompt_length] to [num_rows, length] by the model's own draws.

    temperatures: [num_rows]. The race uses torch's generator, seeded by the caller; END_OF_TEXT
    does not stop a row, since the training stream goes on after it too.
    """
    rows, cache, last = prompts, DynamicCache(config=model.config), prompts
    while rows.shape[1] < length:
        logits = model(input_ids=last, past_key_values=cache, use_cache=True).logits[:, -1]
        weights = (logits.float() / temperatures[:, None]).softmax(-1)
        last = (weights / torch.empty_like(weights).exponential_()).argmax(-1, keepdim=True)
        rows = torch.cat([rows, last], 1)
    return rows


def cold_prompts(num_rows: int, device: torch.device) -> Tensor:
    """[num_rows, 1]: a prompt of nothing but END_OF_TEXT."""
    return torch.full((num_rows, 1), END_OF_TEXT_ID, device=device)
