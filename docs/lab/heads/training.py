"""Trains an EAGLE-3 head for any target: its directory and text files in, a head's directory out.

    PYTHONPATH=docs:tests python -m lab.heads.training --target DIR --text FILE --out HEAD

As in drafting, the head reads its own features in the later places of a draft (training-time test,
arXiv 2503.01840), and learns the target's distribution at each place. It is written in EAGLE's own
format. An interrupted run continues from its last save.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import torch
from attrs import asdict, frozen
from torch import Tensor

from acceptor.adapters.error_text import one_line
from acceptor.adapters.loader import load_any_model
from acceptor.adapters.tokenizer import Tokenizer
from acceptor.core.checks import check_integer
from acceptor.core.errors import AcceptorError
from acceptor.core.policies.parameters import integer, number
from lab.heads.learner import Learner
from lab.heads.state import State, digest_of_target
from lab.pair.text import training_text

WARM_UP, LEAST_RATE = 0.05, 0.05


@frozen(kw_only=True)
class Recipe:
    """The settings that decide a run's outcome, besides target, texts and machine."""

    seed: int = 1
    steps: int = integer(2000, 1)
    rows: int = integer(8, 1)
    context: int = integer(256, 1)
    num_places: int = integer(3, 1)
    draft_vocab_size: int | None = integer(None, 1)
    learning_rate: float = number(2e-3, 0, open_below=True)
    save_every: int = integer(100, 1)

    def rate(self, step: int) -> float:
        """The learning rate: it rises linearly, and falls as a cosine."""
        warm = min((step + 1) / (WARM_UP * self.steps), 1.0)
        fall = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.learning_rate * warm * (LEAST_RATE + (1 - LEAST_RATE) * fall)


def read_texts(texts: Sequence[Path], directory: Path) -> Tensor:
    """All tokens of the training texts.

    Raises:
        AcceptorError: a file is missing or damaged, or a text too short.
    """
    tokenizer = Tokenizer.load(directory).backend
    sections = [section for path in texts for section in training_text(path)]
    return torch.tensor([i for one in tokenizer.encode_batch(sections) for i in one.ids])


@frozen(kw_only=True)
class Progress:
    """The progress of a run.

    Attributes:
        step: how many steps are done.
        loss: the last step's.
        overlaps: the share of drafts that would be accepted, by place.
        tokens_per_second: the speed since the run began or continued.
        gibibytes: the peak of a GPU's memory; 0 on a CPU.
    """

    step: int
    loss: float
    overlaps: tuple[float, ...]
    tokens_per_second: float
    gibibytes: float


def train_head(
    directory: Path,
    target: Any,
    tokens: Tensor,
    out: Path,
    recipe: Recipe,
    on_saved: Callable[[Progress], None] = lambda _: None,
) -> Learner:
    """Train from the last saved state, or from the beginning.

    Raises:
        InvalidInputError: the text or the context is too short, or the context too long.
        CheckpointError: the state is damaged, or of another run.
    """
    check_integer("context", recipe.context, recipe.num_places + 1, target.max_model_len)
    check_integer("tokens of text", len(tokens), recipe.context + 1)
    check_integer("highest token of text", int(tokens.max()), 0, target.vocab_size - 1)
    device = target.device
    counts = tokens.bincount(minlength=target.vocab_size)
    most_common = counts.argsort(descending=True, stable=True)[: recipe.draft_vocab_size]
    learner = Learner.new(directory, target, most_common.sort().values, recipe.seed)
    optimizer = torch.optim.AdamW(learner.weights.values(), weight_decay=0.01, betas=(0.9, 0.95))
    out.mkdir(parents=True, exist_ok=True)
    state = State(out / "state.pt", _made_of(directory, tokens, learner, recipe))
    step = state.restore(learner.weights, optimizer)
    began, num_tokens = time.perf_counter(), 0
    while step < recipe.steps:
        # Each step has its own seed, so that a continued run sees the same rows.
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
        starts = torch.randint(len(tokens) - recipe.context, (recipe.rows, 1), generator=generator)
        token_ids = tokens[starts + torch.arange(recipe.context)].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            loss, overlaps = learner.loss(token_ids, recipe.num_places)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.weights.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        optimizer.step()
        step, num_tokens = step + 1, num_tokens + token_ids.numel()
        if step % recipe.save_every == 0 or step == recipe.steps:
            progress = Progress(
                step=step,
                loss=float(loss.detach()),
                overlaps=tuple(overlaps),
                tokens_per_second=num_tokens / (time.perf_counter() - began),
                gibibytes=_gibibytes(device),
            )
            state.save(step, learner.weights, optimizer)
            on_saved(progress)
    learner.save(out)
    return learner


def _made_of(directory: Path, tokens: Tensor, learner: Learner, recipe: Recipe) -> dict[str, Any]:
    """All that decides the outcome; how often it is saved does not."""
    chosen = asdict(recipe)
    del chosen["save_every"]
    return {
        **chosen,
        "text": sha256(tokens.numpy().tobytes()).hexdigest(),
        "target": digest_of_target(directory),
        "draft ids": sha256(learner.target_ids.numpy().tobytes()).hexdigest(),
        **learner.config,
    }


def _gibibytes(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0


def report(progress: Progress, num_steps: int) -> None:
    """Print a line."""
    shares = " ".join(f"{overlap:.3f}" for overlap in progress.overlaps)
    memory = f", {progress.gibibytes:.1f} GiB" if progress.gibibytes else ""
    click.echo(
        f"step {progress.step} of {num_steps}: loss {progress.loss:.3f}, accepted per place "
        f"{shares}, {progress.tokens_per_second:.0f} tokens/s{memory}"
    )


@click.command()
@click.option("--target", type=click.Path(path_type=Path), required=True)
@click.option("--text", "texts", type=click.Path(path_type=Path), multiple=True, required=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--steps", default=Recipe().steps, show_default=True)
@click.option("--rows", default=Recipe().rows, show_default=True)
@click.option("--context", default=Recipe().context, show_default=True)
@click.option("--places", default=Recipe().num_places, show_default=True)
@click.option("--learning-rate", default=Recipe().learning_rate, show_default=True)
@click.option("--draft-vocab-size", type=int, help="The most common tokens.  [default: all]")
@click.option("--save-every", default=Recipe().save_every, show_default=True)
def main(
    target: Path, texts: tuple[Path, ...], out: Path, device: str, places: int, **recipe: Any
) -> None:
    """Write OUT/config.json and OUT/model.safetensors; OUT/state.pt serves to continue."""
    try:
        settings = Recipe(num_places=places, **recipe)
        tokens, model = read_texts(texts, target), load_any_model(target, device=device)
        train_head(target, model, tokens, out, settings, partial(report, num_steps=settings.steps))
    except AcceptorError as error:
        raise click.ClickException(one_line(error)) from None


if __name__ == "__main__":
    main()
