"""Measures what draft heads cost on a GPU, and the public pairs.

Run it from the repository's root:

    PYTHONPATH=docs:tests python -m lab.heads.tables --json docs/data/heads.json

Every pair that `acceptor bench --pair` knows is served with random weights, Llama-3-8B with a draft
model of 1B is served in the same way, and a head for it is trained for a few steps. On the CPU,
drafters are compared on the bundled target. The file is written after every run, and the page's
tables are printed; `--part` measures some parts anew and keeps the rest.
"""

import gc
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from attrs import evolve, field, frozen

from acceptor.adapters.loader import random_any_model
from acceptor.app.bench.command import FILE, bench
from acceptor.app.bench.files import describe, read_record, write_record
from acceptor.app.bench.main import make_benches
from acceptor.app.bench.public_pairs import PAIRS
from acceptor.app.bench.results import BenchResults, joined
from acceptor.app.bench.sweep import PLAIN
from acceptor.app.bench.table import Table
from acceptor.app.bench.tables import comparable
from kit.shapes import DRAFT
from lab.heads.training import Progress, Recipe, train_head

EAGLE3, ONE_B, BUNDLED, TRAINING = "llama3-eagle3", "llama3-1b", "bundled", "training"
PARTS = (*PAIRS, ONE_B, TRAINING, BUNDLED)
TRAINING_STEPS = 12
LOAD = ("--num-requests", "16", "--input-len", "128", "--output-len", "32")
CUT = dict.fromkeys(("gptoss-eagle3", "glm-mtp"), ("--target-layers", "12"))
"""So that they take no longer than the others."""
ON_CPU = ("--num-requests", "24", "--output-len", "64", "--ignore-eos", "--cpu-time")
DRAFTERS = ("--drafter", "model,eagle3,ngram,early-exit", "--num-spec-tokens", "0,4")


@frozen(kw_only=True)
class Training:
    """How a head was trained for Llama-3-8B's shape.

    Attributes:
        device: the device that it ran on.
        recipe: the run's recipe.
        last: its last line of progress.
    """

    device: str
    recipe: Recipe
    last: Progress


@frozen(kw_only=True)
class Heads:
    """All measurements.

    Attributes:
        training: None until it has run.
        served: by the part's name.
    """

    training: Training | None = None
    served: Mapping[str, BenchResults] = field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Heads":
        """Read what an earlier run wrote; empty if there is no file."""
        return read_record(path, cls, "lab.heads.tables") if path.exists() else cls()

    def tables(self) -> list[str]:
        """The page's tables: of steps, and of pairs."""
        return [_of_steps(self.served), _of_pairs(self.served)]


def steps(served: Mapping[str, BenchResults]) -> dict[int, dict[str, float]]:
    """Milliseconds between the tokens of two steps: number of requests -> what drafts -> them.

    Of what drafts for Llama-3-8B, at the same rate of acceptance.
    """
    found = defaultdict[int, dict[str, float]](dict)
    for name in (ONE_B, EAGLE3):
        for run in served[name].runs if name in served else ():
            policy, num_reqs = run.setting.policy, run.setting.max_concurrency or 0
            if policy == PLAIN or policy.startswith("synthetic"):
                drafter = PLAIN if policy == PLAIN else name
                found[num_reqs][drafter] = run.figures.itl.median
    return dict(found)


def _of_steps(served: Mapping[str, BenchResults]) -> str:
    shown = (PLAIN, ONE_B, EAGLE3)
    rows = []
    for num_reqs, of in sorted(steps(served).items()):
        row = [f"{of[name]:.2f}" if name in of else "–" for name in shown]
        saved = f"{1 - of[EAGLE3] / of[ONE_B]:.0%}" if {ONE_B, EAGLE3} <= of.keys() else "–"
        rows.append([str(num_reqs), *row, saved])
    head = ["requests", PLAIN, "1B draft model", "EAGLE-3 head", "the head saves"]
    return Table(head=head, rows=rows).as_markdown()


def _of_pairs(served: Mapping[str, BenchResults]) -> str:
    rows = []
    for name, pair in PAIRS.items():
        if name in served:
            one, several = comparable(served[name].runs)
            both = [(a.figures, b.figures) for a, b in zip(one, several, strict=True)]
            rates = "/".join(f"{rate:g}" for rate in pair.rates)
            per_token = ["/".join(f"{f.tpot.mean:.2f}" for f in two) for two in both[:4]]
            lengths = "/".join(f"{first.acceptance.acceptance_length:.2f}" for first, _ in both[:4])
            rows.append([f"`{name}`", rates, *per_token, lengths])
    head = ["`--pair`", "rates", "strict", "probabilistic", "block", "synthetic"]
    return Table(head=[*head, "lengths"], rows=rows).as_markdown()


@click.command()
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS)
@click.option("--json", "json_file", type=FILE, required=True, help="What to add to.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--backend", default="triton", show_default=True)
@click.option("--target-layers", help="Of each target that is served, fewer than it has.")
def main(parts: Sequence[str], json_file: Path, device: str, **how: str | None) -> None:
    """Measure, write the file after every run, and print tables."""
    heads = Heads.read(json_file)
    flags = [*LOAD, "--device", device]
    for name, value in how.items():
        flags += [] if value is None else [f"--{name.replace('_', '-')}", value]
    for part in parts:
        if part == TRAINING:
            heads = evolve(heads, training=train(device))
            write_record(json_file, heads)
            continue
        for results in measured(part, flags):
            heads = evolve(heads, served={**heads.served, part: results})
            write_record(json_file, heads)
            click.echo(f"{part}: {results.runs[-1].setting.label}")
    click.echo("\n".join(heads.tables()))


def measured(part: str, how: Sequence[str]) -> Iterator[BenchResults]:
    """Yield all results so far after every run."""
    done: list[BenchResults] = []
    with TemporaryDirectory() as folder:
        context = bench.make_context("bench", [*_arguments(part, how, Path(folder))])
        for one in make_benches(context.params):
            for latest in one.results():
                yield joined([*done, latest])
            done.append(latest)
    # Networks of transformers hold references to themselves.
    gc.collect()


def _arguments(part: str, how: Sequence[str], folder: Path) -> tuple[str, ...]:
    if part == BUNDLED:
        return *DRAFTERS, *ON_CPU
    if part != ONE_B:
        return "--pair", part, "--random-weights", *CUT.get(part, ()), *how
    target, draft = PAIRS[EAGLE3].shapes[0], folder / "llama-3.2-1b.json"
    draft.write_text(json.dumps(DRAFT), encoding="utf-8")
    models = ("--random-weights", str(target), "--draft-random-weights", str(draft))
    rate = ("--synthetic-acceptance-rate", str(PAIRS[EAGLE3].rates[0]))
    load = ("--num-spec-tokens", "0,3", "--max-concurrency", "1,16", "--ignore-eos")
    return *models, *rate, *load, *how


def train(device: str) -> Training:
    """Train a head for a target with random weights, on random text."""
    progress: list[Progress] = []
    shape, on_gpu = PAIRS[EAGLE3].shapes[0], device != "cpu"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    target: Any = random_any_model(shape, dtype=dtype, device=device)
    tokens = torch.randint(target.vocab_size, (100_000,), generator=torch.Generator())
    recipe = Recipe(steps=TRAINING_STEPS, draft_vocab_size=min(target.vocab_size, 32_000))
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with TemporaryDirectory() as folder:
        copyfile(shape, Path(folder) / "config.json")
        train_head(Path(folder), target, tokens, Path(folder) / "head", recipe, progress.append)
    return Training(device=describe(target.device)["device"], recipe=recipe, last=progress[-1])


if __name__ == "__main__":
    main()
