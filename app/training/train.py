"""Trains the target on the texts and keeps the average that predicts the held-out text best.

Looks at the held-out text only to choose when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from .data import TokenStream
from .measure import held_out_loss
from .models import as_shipped, build_model, compile_layers, dropout, learner, logits_of
from .pace import Budget, Pace
from .recipe import Recipe

Report = Callable[[str], None]
Keep = Callable[[LlamaForCausalLM], None]


@frozen
class Point:
    """One point of a loss curve; losses in nats per token, None where a curve has no such value."""

    step: int
    training_loss: float
    held_out_loss: float
    overlap: float | None = None

    def text(self, name: str, pace: Pace) -> str:
        """One line about the model of this name."""
        parts = [
            f"{name}: step {self.step} of {pace.num_steps}, {pace.budget.elapsed:.1f} s",
            f"training loss {self.training_loss:.3f}",
            f"held-out loss {self.held_out_loss:.3f}",
        ]
        if self.overlap is not None:
            parts.append(f"overlap {self.overlap:.3f}")
        return ", ".join(parts)


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Mean cross-entropy of each token given those before it, in nats; -1 counts as nothing."""
    return cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=-1
    )


def autocast(device: torch.device) -> torch.autocast:
    """bf16 matrix products where the device is quick at them; fp32 weights everywhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def train_target(
    training: TokenStream,
    held_out: Tensor,
    recipe: Recipe,
    budget: Budget,
    keep: Keep,
    report: Report,
) -> tuple[LlamaForCausalLM, list[Point]]:
    """The averaged target with the lowest held-out loss, as shipped, and the loss curve.

    `keep` is given each one that is better than all before it.
    """
    device = held_out.device
    generator = torch.Generator().manual_seed(recipe.seed)
    model = build_model(recipe.target, recipe, device)
    learning = learner(model, recipe.target_learning_rate, recipe)
    curve: list[Point] = []
    best = model

    def loss_of_rows() -> Tensor:
        rows = training.rows(recipe.target_rows_per_step, recipe.context_length, generator)
        with autocast(device):
            return next_token_loss(logits_of(model, rows), rows)

    def evaluate(loss: Tensor) -> None:
        nonlocal best
        candidate = as_shipped(learning.average.module)
        curve.append(Point(pace.step, loss.item(), held_out_loss(candidate, held_out)))
        report(curve[-1].text("target", pace))
        if curve[-1] is best_of(curve):
            best = candidate
            keep(best)
        pace.note_evaluation()

    with dropout(model, recipe.dropout):
        _compile(model, loss_of_rows)
        pace = Pace(recipe.target_steps, recipe.evaluate_every, budget.part(1.0))
        for progress in pace:
            loss = loss_of_rows()
            learning.step(loss, progress)
            if pace.is_due():
                evaluate(loss)
                if recipe.patience and evaluations_since_best(curve) >= recipe.patience:
                    break
    if pace.is_last_due():
        evaluate(loss)
    return best, curve


def _compile(model: LlamaForCausalLM, loss: Callable[[], Tensor]) -> None:
    """On a GPU, before the clock counts: learning rates would be past their warm-up."""
    if model.device.type == "cuda":
        compile_layers(model)
        loss().backward()


def best_of(curve: Sequence[Point]) -> Point:
    """The point with the lowest held-out loss."""
    return min(curve, key=lambda point: point.held_out_loss)


def evaluations_since_best(curve: Sequence[Point]) -> int:
    """How many have come after it."""
    return len(curve) - 1 - curve.index(best_of(curve))
