"""Teaches the draft the target's distributions, on training text and on the target's own text.

Minimises what costs acceptance: first the divergence, then the total variation distance itself,
since a draft token is accepted with probability 1 - TV(p, q).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from attrs import frozen
from torch import Tensor
from transformers import LlamaForCausalLM

from .data import TokenStream
from .measure import cold_prompts, held_out_loss, measure_agreement, sample_rows
from .models import as_shipped, build_model, learner, logits_of
from .recipe import Recipe
from .train import Point, Report, autocast

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
    target: LlamaForCausalLM, recipe: Recipe, device: torch.device
) -> tuple[Pool, Pool]:
    """A pool at temperature 1 and one, a quarter of its size, at 0.7."""
    # bf16 halves the cache; what the rows are drawn from need not be exact, only close.
    writer = deepcopy(target).to(torch.bfloat16) if device.type == "cuda" else target
    unseen = recipe.evaluation_rows
    sizes = [recipe.sampled_rows + unseen, recipe.sampled_rows // 4 + unseen]
    temperatures = torch.ones(sum(sizes), device=device)
    temperatures[sizes[0] :] = _COOL
    prompts = cold_prompts(len(temperatures), device)
    warm, cool = sample_rows(writer, prompts, temperatures, recipe.context_length).split(sizes)
    return Pool(1.0, warm[unseen:], warm[:unseen]), Pool(_COOL, cool[unseen:], cool[:unseen])


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


def variation_share(step: int, num_steps: int) -> float:
    """0 for the first third of the steps, then a straight line to 1 at half of them."""
    return min(max(6 * step / num_steps - 2, 0.0), 1.0)


def distill_draft(
    target: LlamaForCausalLM,
    training: TokenStream,
    pools: tuple[Pool, Pool],
    held_out: Tensor,
    recipe: Recipe,
    report: Report,
) -> tuple[LlamaForCausalLM, list[Point]]:
    """The averaged draft after the last step, as shipped, and its curve."""
    device = held_out.device
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    draft = build_model(recipe.draft, recipe, device)
    learning = learner(draft, recipe.draft_learning_rate, recipe.draft_steps, recipe)
    curve: list[Point] = []
    for step in range(1, recipe.draft_steps + 1):
        rows, temperatures = _mixed_rows(training, pools, recipe, generator)
        with autocast(device):
            with torch.no_grad():
                target_logits = logits_of(target, rows)
            draft_logits = logits_of(draft, rows)
        share = variation_share(step, recipe.draft_steps)
        loss = distillation_loss(target_logits, draft_logits, temperatures, share)
        learning.step(loss)
        if step % recipe.evaluate_every == 0:
            candidate = as_shipped(learning.average.module)
            overlap = measure_agreement(target, candidate, pools[0].unseen, 1.0).overlap
            held_out_now = held_out_loss(candidate, held_out)
            curve.append(Point(step, loss.item(), held_out_now, overlap))
            report(f"draft {curve[-1]}")
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
