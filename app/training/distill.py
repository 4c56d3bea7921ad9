"""Teaches the draft the target's distributions, on training text and on the target's own text.

Minimises what costs acceptance: first the divergence, then the total variation distance itself,
since a draft token is accepted with probability 1 - TV(p, q).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor
from transformers import LlamaForCausalLM

from .data import TokenStream
from .measure import held_out_loss, measure_agreement
from .models import as_shipped, build_model, learner, logits_of, teacher_of
from .pace import Budget, Pace
from .recipe import Recipe
from .sampling import as_served, sample_rows
from .train import Keep, Point, Report, autocast

_COOL = 0.7


@frozen(eq=False)
class Pool:
    """Text that the target wrote from nothing: [num_rows, context_length] tokens each.

    The draft learns from `seen`; `unseen` is for measuring.
    """

    temperature: float
    seen: Tensor
    unseen: Tensor


def sample_pools(
    target: LlamaForCausalLM, recipe: Recipe, device: torch.device, budget: Budget
) -> tuple[Pool, Pool]:
    """A pool at temperature 1 and one, a quarter of its size, at 0.7.

    When the budget is over no more rows are begun, but for those of a first part.
    """
    writer = as_served(target)
    temperatures = _temperatures(recipe).to(device)
    parts: list[Tensor] = []
    for part in temperatures.split(_rows_at_once(recipe)):
        if parts and budget.share >= 1:
            break
        parts.append(sample_rows(writer, part, recipe.context_length))
    rows = torch.cat(parts)
    is_warm = temperatures[: len(rows)] == 1.0
    unseen = recipe.evaluation_rows
    warm, cool = rows[is_warm], rows[~is_warm]
    return Pool(1.0, warm[unseen:], warm[:unseen]), Pool(_COOL, cool[unseen:], cool[:unseen])


def _temperatures(recipe: Recipe) -> Tensor:
    """Of all rows: what is for measuring, then what is learned from, warm ones first in fives."""
    measured = torch.tensor([1.0, _COOL]).repeat_interleave(recipe.evaluation_rows)
    fives = torch.tensor([1.0, 1.0, _COOL, 1.0, 1.0])
    learned = fives.repeat(-(-recipe.sampled_rows // 4))
    return torch.cat([measured, learned])


def _rows_at_once(recipe: Recipe) -> int:
    # The first part has rows of both pools to learn from.
    return max(recipe.sampled_at_once, 2 * recipe.evaluation_rows + 5)


def distillation_loss(
    target_logits: Tensor, draft_logits: Tensor, temperatures: Tensor, variation_share: float
) -> Tensor:
    """Mean of cross-entropy (p, q) and TV(p, q), mixed by `variation_share`; in nats.

    target_logits, draft_logits: [rows, length, vocab_size]; temperatures: [rows].
    """
    temperatures = temperatures[:, None, None]
    p = (target_logits.float() / temperatures).softmax(-1)
    log_q = (draft_logits.float() / temperatures).log_softmax(-1)
    # KL(p, q) but for the target's entropy, which no draft can change.
    divergence = -(p * log_q).sum(-1).mean()
    variation = 1 - torch.minimum(p, log_q.exp()).sum(-1).mean()
    return (1 - variation_share) * divergence + variation_share * variation


def variation_share(progress: float) -> float:
    """0 for the first third, then a straight line to 1 at the half."""
    return min(max(6 * progress - 2, 0.0), 1.0)


def distill_draft(
    target: LlamaForCausalLM,
    training: TokenStream,
    pools: tuple[Pool, Pool],
    held_out: Tensor,
    recipe: Recipe,
    budget: Budget,
    keep: Keep,
    report: Report,
) -> tuple[LlamaForCausalLM, list[Point]]:
    """The averaged draft after the last step, as shipped, and its curve.

    `keep` is given each one that was evaluated.
    """
    device = held_out.device
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    draft = build_model(recipe.draft, recipe, device)
    learning = learner(draft, recipe.draft_learning_rate, recipe)
    teacher = teacher_of(target)
    curve: list[Point] = []

    def teach(rows: Tensor) -> Tensor:
        with autocast(device), torch.no_grad():
            return logits_of(teacher, rows)

    def evaluate(loss: Tensor) -> None:
        candidate = as_shipped(learning.average.module)
        overlap = measure_agreement(target, candidate, pools[0].unseen, 1.0).overlap
        curve.append(Point(pace.step, loss.item(), held_out_loss(candidate, held_out), overlap))
        report(curve[-1].text("draft", pace))
        keep(candidate)
        pace.note_evaluation()

    # Compiling is no progress, after which learning rates would be past their warm-up.
    teach(_mixed_rows(training, pools, recipe, generator)[0])
    pace = Pace(recipe.draft_steps, recipe.evaluate_every, budget.part(1.0))
    for progress in pace:
        rows, temperatures = _mixed_rows(training, pools, recipe, generator)
        target_logits = teach(rows)
        with autocast(device):
            draft_logits = logits_of(draft, rows)
        share = variation_share(progress)
        loss = distillation_loss(target_logits, draft_logits, temperatures, share)
        learning.step(loss, progress)
        if pace.is_due():
            evaluate(loss)
    if pace.is_last_due():
        evaluate(loss)
    return as_shipped(learning.average.module), curve


def _mixed_rows(
    training: TokenStream, pools: Sequence[Pool], recipe: Recipe, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A quarter training text, half warm pool, a quarter cool pool, and each row's temperature."""
    quarter = max(recipe.draft_rows_per_step // 4, 1)
    parts = [training.rows(quarter, recipe.context_length, generator)]
    temperatures = [1.0] * quarter
    for pool, num_rows in zip(pools, (2 * quarter, quarter), strict=True):
        chosen = torch.randint(len(pool.seen), (num_rows,), generator=generator)
        parts.append(pool.seen[chosen.to(pool.seen.device)])
        temperatures += [pool.temperature] * num_rows
    return torch.cat(parts), torch.tensor(temperatures, device=parts[0].device)
