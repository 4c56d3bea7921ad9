r"""Trains the bundled pair: text files in; a target, a draft and the record of the run out.

    PYTHONPATH=docs:tests python -m lab.pair.training --text tinyshakespeare.txt \
      --text gutenberg.txt --device cuda --out DIR

The target learns the next token, and the average of its weights with the lowest held-out loss is
kept. The draft learns the target's distributions, on training text and on text that the target
wrote: first by their divergence, then by the total variation distance itself, since a draft token
is accepted with probability 1 - TV(p, q).
"""

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

import click
import torch
import transformers
from attrs import asdict, frozen
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from lab.pair.learner import Learner, Recipe, as_shipped, autocast, dropout
from lab.pair.measures import held_out_loss, logits_of, measure_agreement, write_rows
from lab.pair.text import END_OF_TEXT, Source, TokenStream, train_tokenizer

COOL = 0.7


@frozen(eq=False)
class Pool:
    """Text that the target wrote: [num_rows, context_length] tokens to learn and to measure."""

    temperature: float
    seen: Tensor
    unseen: Tensor


Curve = list[dict[str, float]]


@click.command()
@click.option("--text", "texts", type=click.Path(path_type=Path), multiple=True, required=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--device", default="cpu", show_default=True)
def main(texts: tuple[Path, ...], out: Path, device: str) -> None:
    """Write OUT/target, OUT/draft and OUT/record.json."""
    train_pair(texts, out, Recipe(), torch.device(device))


def train_pair(paths: Sequence[Path], out: Path, recipe: Recipe, device: torch.device) -> None:
    """Everything in order: texts, tokenizer, target, the target's own text, draft, files."""
    torch.manual_seed(recipe.seed)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    sources = [Source.read(path) for path in paths]
    training = [text for source in sources for text in source.training]
    held_out = [text for source in sources for text in source.held_out]
    tokenizer, reach = train_tokenizer(training, recipe.vocab_size), recipe.context_length // 2
    stream = TokenStream.of(tokenizer, training, reach, device)
    unseen = TokenStream.of(tokenizer, held_out, reach, device)
    rows = unseen.covering_rows(recipe.context_length)
    target, target_curve = train_target(stream, rows, recipe)
    pools = write_pools(target, recipe)
    draft, draft_curve = distill_draft(target, stream, pools, rows, recipe)
    models = {"target": target, "draft": draft}
    for name, model in models.items():
        deepcopy(model).to("cpu", torch.bfloat16).save_pretrained(out / name)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            bos_token=END_OF_TEXT,
            eos_token=END_OF_TEXT,
            model_max_length=recipe.context_length,
            clean_up_tokenization_spaces=False,
        ).save_pretrained(out / name)
    num_bytes = sum(len(text.encode()) for text in held_out)
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "recipe": asdict(recipe),
        "sources": [source.name for source in sources],
        "training_tokens": len(stream.tokens),
        "models": {name: _about(model, rows, num_bytes) for name, model in models.items()},
        "agreement": [measure_agreement(target, draft, p.unseen, p.temperature) for p in pools],
        "curves": {"target": target_curve, "draft": draft_curve},
    }
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (out / "record.json").write_text(text, encoding="utf-8")


def _about(model: LlamaForCausalLM, rows: Tensor, num_bytes: int) -> dict[str, float]:
    nats, num_tokens = held_out_loss(model, rows), int((rows[:, 1:] >= 0).sum())
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out_nats_per_token": nats,
        "held_out_bits_per_byte": nats * num_tokens / num_bytes / math.log(2),
    }


def train_target(
    training: TokenStream, held_out: Tensor, recipe: Recipe
) -> tuple[LlamaForCausalLM, Curve]:
    """The averaged target with the lowest held-out loss, as shipped, and the loss curve."""
    generator = torch.Generator().manual_seed(recipe.seed)
    rate, steps = recipe.target_learning_rate, recipe.target_steps
    learner = Learner(recipe.target, rate, steps, recipe, held_out.device)
    curve: Curve = []
    best = as_shipped(learner.average.module)
    with dropout(learner.model, recipe.dropout):
        for step in range(1, steps + 1):
            rows = training.rows(recipe.target_rows_per_step, recipe.context_length, generator)
            with autocast(rows.device):
                logits = logits_of(learner.model, rows)[:, :-1].flatten(0, 1).float()
            loss = cross_entropy(logits, rows[:, 1:].flatten())
            learner.step(loss)
            if step % recipe.evaluate_every == 0:
                candidate = as_shipped(learner.average.module)
                held_out_now = held_out_loss(candidate, held_out)
                if held_out_now < min((one["held_out_loss"] for one in curve), default=math.inf):
                    best = candidate
                curve.append(_point(step, training_loss=loss.item(), held_out_loss=held_out_now))
    return best, curve


def _point(step: int, **measured: float) -> dict[str, float]:
    click.echo(f"step {step}: {measured}")
    return {"step": step, **measured}


def write_pools(target: LlamaForCausalLM, recipe: Recipe) -> tuple[Pool, Pool]:
    """A pool at temperature 1 and one, a quarter of its size, at 0.7."""
    writer = deepcopy(target).to(torch.bfloat16) if target.device.type == "cuda" else target
    pools = []
    for temperature, num_rows in ((1.0, recipe.sampled_rows), (COOL, recipe.sampled_rows // 4)):
        num_unseen = recipe.evaluation_rows
        temperatures = torch.full((num_unseen + num_rows,), temperature, device=target.device)
        rows = write_rows(writer, temperatures, recipe.context_length)
        pools.append(Pool(temperature, rows[num_unseen:], rows[:num_unseen]))
    return pools[0], pools[1]


def distill_draft(
    target: LlamaForCausalLM,
    training: TokenStream,
    pools: tuple[Pool, Pool],
    held_out: Tensor,
    recipe: Recipe,
) -> tuple[LlamaForCausalLM, Curve]:
    """The averaged draft after the last step, as shipped, and its curve."""
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    rate, steps = recipe.draft_learning_rate, recipe.draft_steps
    learner = Learner(recipe.draft, rate, steps, recipe, held_out.device)
    curve: Curve = []
    for step in range(1, steps + 1):
        rows, temperatures = mixed_rows(training, pools, recipe, generator)
        with autocast(rows.device):
            with torch.no_grad():
                wanted = logits_of(target, rows)
            logits = logits_of(learner.model, rows)
        share = variation_share((step - 1) / steps)
        learner.step(distillation_loss(wanted, logits, temperatures, share))
        if step % recipe.evaluate_every == 0:
            candidate = as_shipped(learner.average.module)
            overlap = measure_agreement(target, candidate, pools[0].unseen, 1.0)["overlap"]
            loss_now = held_out_loss(candidate, held_out)
            curve.append(_point(step, held_out_loss=loss_now, overlap=overlap))
    return as_shipped(learner.average.module), curve


def mixed_rows(
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


if __name__ == "__main__":
    main()
