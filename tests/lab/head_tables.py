"""What draft heads cost on a GPU, and the tables that others have printed of their pairs.

Run it from the repository's root:

    PYTHONPATH=tests python -m lab.head_tables --out docs/data

Every pair that `acceptor bench --pair` knows is served with random weights, Llama-3-8B with a draft
model of 1B is served in the same way, and a head for it is trained for a few steps. On the CPU,
drafters stand side by side on the bundled target. The script writes heads.json and heads.md after
every run; `--part` measures some anew and keeps the others.
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

from acceptor.adapters.adapter_choice import random_any_model
from acceptor.app.bench.command import bench
from acceptor.app.bench.files import read_record, write_file, write_record
from acceptor.app.bench.main import make_benches
from acceptor.app.bench.markdown import as_markdown
from acceptor.app.bench.public_pairs import PAIRS
from acceptor.app.bench.results import BenchResults, joined
from acceptor.app.bench.sweep import PLAIN
from acceptor.app.bench.table import Table
from kit.llama_shapes import DRAFT
from lab.head_training import Progress, Recipe, train_head

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
        recipe: of the run.
        last: what it said at its end.
    """

    recipe: Recipe
    last: Progress


@frozen(kw_only=True)
class Heads:
    """Everything that was measured.

    Attributes:
        served: by the part's name.
        training: None until it has run.
    """

    served: Mapping[str, BenchResults] = field(factory=dict)
    training: Training | None = None

    @classmethod
    def read(cls, path: Path) -> "Heads":
        """What an earlier run wrote; nothing where there is no such file."""
        return read_record(path, cls, "lab.head_tables") if path.exists() else cls()

    def write(self, out: Path) -> None:
        """Write heads.json and heads.md."""
        write_record(out / "heads.json", self)
        write_file(out / "heads.md", self.as_markdown())

    def as_markdown(self) -> str:
        """What a step costs, and the tables of all pairs."""
        parts = ["<!-- steps -->\n", _table_of_steps(self.served), "<!-- bundled -->\n"]
        if BUNDLED in self.served:
            parts.append(as_markdown(self.served[BUNDLED], cpu_time=True))
        parts.append("<!-- pairs -->\n")
        for name in PAIRS:
            if name in self.served:
                results = self.served[name]
                models = ", ".join(results.models.values())
                parts += [f"**`{name}`**: {models}.\n", as_markdown(results)]
        return "\n".join(parts)


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


def _table_of_steps(served: Mapping[str, BenchResults]) -> str:
    shown = (PLAIN, ONE_B, EAGLE3)
    rows = [
        [str(num_reqs), *(f"{of[name]:.2f}" if name in of else "–" for name in shown)]
        for num_reqs, of in sorted(steps(served).items())
    ]
    head = ["requests", PLAIN, "1B draft model", "EAGLE-3 head"]
    return Table(head=head, rows=rows).as_markdown()


@click.command()
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--device", default="cuda", show_default=True)
@click.option("--backend", default="triton", show_default=True)
@click.option("--target-layers", help="Of each target that is served, fewer than it has.")
def main(parts: Sequence[str], out: Path, device: str, backend: str, **cut: str | None) -> None:
    """Measure, and write heads.json and heads.md after every run."""
    out.mkdir(parents=True, exist_ok=True)
    heads = Heads.read(out / "heads.json")
    how = [*LOAD, "--device", device, "--backend", backend]
    how += ["--target-layers", cut["target_layers"]] if cut["target_layers"] else []
    for part in parts:
        if part == TRAINING:
            heads = evolve(heads, training=train(device))
            heads.write(out)
            continue
        for results in measured(part, how):
            heads = evolve(heads, served={**heads.served, part: results})
            heads.write(out)
            click.echo(f"{part}: {results.runs[-1].setting.label}")


def measured(part: str, how: Sequence[str]) -> Iterator[BenchResults]:
    """All results so far, after every run."""
    done: list[BenchResults] = []
    with TemporaryDirectory() as folder:
        context = bench.make_context("bench", [*_arguments(part, how, Path(folder))])
        for one in make_benches(context.params):
            for latest in one.results():
                yield joined([*done, latest])
            done.append(latest)
    # Networks of transformers refer to themselves.
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
    """A head for a target of random weights, on random text."""
    told: list[Progress] = []
    shape, on_gpu = PAIRS[EAGLE3].shapes[0], device != "cpu"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    target: Any = random_any_model(shape, dtype=dtype, device=device)
    tokens = torch.randint(target.vocab_size, (100_000,), generator=torch.Generator())
    recipe = Recipe(steps=TRAINING_STEPS, draft_vocab_size=min(target.vocab_size, 32_000))
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with TemporaryDirectory() as folder:
        copyfile(shape, Path(folder) / "config.json")
        train_head(Path(folder), target, tokens, Path(folder) / "head", recipe, told.append)
    return Training(recipe=recipe, last=told[-1])


if __name__ == "__main__":
    main()
