"""Trains the target on the texts and keeps the average that predicts the held-out text best.

Looks at the held-out text only to choose when to stop.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from .data import TokenStream
from .measure import held_out_loss
from .models import as_shipped, build_model, dropout, learner, logits_of
from .recipe import Recipe

Report = Callable[[str], None]


@frozen
class Point:
    """One point of a loss curve; losses in nats per token, None where a curve has no such value."""

    step: int
    training_loss: float
    held_out_loss: float
    overlap: float | None = None


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Mean cross-entropy of each token given those before it, in nats; -1 counts as nothing."""
    return cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=-1
    )


def autocast(device: torch.device) -> torch.autocast:
    """bf16 matrix products where the device is quick at them; fp32 weights everywhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def train_target(
    training: TokenStream, held_out: Tensor, recipe: Recipe, device: torch.device, report: Report
) -> tuple[LlamaForCausalLM, list[Point]]:
    """The averaged target with the lowest held-out loss, as shipped, and the loss curve."""
    generator = torch.Generator().manual_seed(recipe.seed)
    model = build_model(recipe.target, recipe, device)
    learning = learner(model, recipe.target_learning_rate, recipe.target_steps, recipe)
    curve: list[Point] = []
    best = as_shipped(model)
    with dropout(model, recipe.dropout):
        for step in range(1, recipe.target_steps + 1):
            rows = training.rows(recipe.target_rows_per_step, recipe.context_length, generator)
            with autocast(device):
                loss = next_token_loss(logits_of(model, rows), rows)
            learning.step(loss)
            if step % recipe.evaluate_every == 0:
                candidate = as_shipped(learning.average.module)
                point = Point(step, loss.item(), held_out_loss(candidate, held_out))
                if point.held_out_loss <= min((p.held_out_loss for p in curve), default=torch.inf):
                    best = candidate
                curve.append(point)
                report(f"target {point}")
    return best, curve
