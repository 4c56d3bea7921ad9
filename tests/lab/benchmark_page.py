"""The tables and figures of docs/benchmark.md: the lossless policies on the bundled pair.

    PYTHONPATH=tests python -m lab.benchmark_page --num-requests 16 --output-len 40 \\
      --prompts MT-Bench mt_bench.jsonl --prompts Spec-Bench spec_bench.jsonl

It measures and writes benchmark-bundled.json, benchmark-bundled.md and two figures; `--read` writes
the tables and figures of an earlier measurement again.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from attrs import evolve, frozen

from acceptor.app.bench.files import read_record, write_file, write_record
from acceptor.app.bench.pair import Pair, load_pair
from acceptor.app.bench.plots import draw_acceptance, draw_throughput, save
from acceptor.app.bench.results import BenchResults, BenchRun
from acceptor.app.bench.rows import sections
from acceptor.app.bench.run import Bench
from acceptor.app.bench.sweep import Load, Sweep
from acceptor.app.bench.table import Table
from acceptor.app.bench.tables import compared
from acceptor.app.config import DrafterConfig, ModelsConfig
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.policies import PolicySettings, SyntheticSettings
from acceptor.core import POLICIES, SamplingParams, Synthetic

NAME = "benchmark-bundled"
POLICY_NAMES = ("strict", "strict-coupled", "probabilistic", "block")
LENGTHS, FEW = (0, 2, 4, 8), (3,)
STRICT_ROWS = (
    "output tokens per CPU second",
    "acceptance rate (%)",
    "acceptance length",
    *(f"position {place}" for place in range(LENGTHS[2])),
)
SET_RATES = (0.24, 0.6, 0.69, 0.9)
# The last drafts of an output are shorter, and accepted at a higher rate; so outputs are long.
SYNTHETIC_LOAD = Load(
    num_requests=128, max_concurrency=32, output_len=400, warm_up=0, ignore_eos=True
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@frozen(kw_only=True)
class Document:
    """Everything that the page shows.

    Attributes:
        lengths: policies at several K, on the built-in prompts.
        datasets: policies by set of prompts.
        synthetic: set rates.
    """

    lengths: BenchResults
    datasets: Mapping[str, BenchResults]
    synthetic: BenchResults


def measure(pair: Pair, load: Load, files: Mapping[str, Path]) -> Document:
    """Serve every load; only the sweep over K is about speed."""
    policies: dict[str, PolicySettings] = {name: POLICIES[name] for name in POLICY_NAMES}
    rates: dict[str, PolicySettings] = {
        f"synthetic {rate:g}": SyntheticSettings(acceptance_rate=rate) for rate in SET_RATES
    }
    run = partial(_run, pair, policies=policies)
    datasets = {name: run(load, FEW, categories=[name]) for name in ("plays", "prose")}
    datasets |= {
        name: run(evolve(load, prompts=file.name), FEW, file=file) for name, file in files.items()
    }
    # A set rate does not depend on the models: the draft verifies itself, as it is cheaper.
    drafter = pair.parts.drafter
    assert isinstance(drafter, ModelDrafter)
    cheap = evolve(pair, parts=evolve(pair.parts, target=drafter.model))
    return Document(
        lengths=run(load, LENGTHS),
        datasets=datasets,
        synthetic=_run(cheap, evolve(SYNTHETIC_LOAD, greedy_share=1.0), FEW, policies=rates),
    )


def _run(
    pair: Pair,
    load: Load,
    lengths: tuple[int, ...],
    *,
    policies: dict[str, PolicySettings],
    file: Path | None = None,
    categories: Sequence[str] | None = None,
) -> BenchResults:
    sweep = Sweep(
        policies=policies, num_spec_tokens=lengths, temperatures=(1.0,), backends=("reference",)
    )
    prompts = pair.reader.prompts(load, file, categories)
    sampling = SamplingParams()
    return Bench(pair=pair, sweep=sweep, load=load, sampling=sampling, prompts=prompts).run()


def as_markdown(document: Document) -> str:
    """Every table under its caption."""
    return "\n".join(_parts(document))


def _parts(document: Document) -> Iterator[str]:
    machine, load = document.lengths.machine, document.lengths.load
    yield (
        f"Measured on {document.lengths.date}: {machine['device']}, torch {machine['torch']}; "
        f"{load.num_requests} requests of {load.output_len} tokens for each figure, at most "
        f"{load.max_concurrency} at a time.\n"
    )
    yield "**Against strict**, in parentheses the difference, in points for rates:\n"
    runs = [run for run in document.lengths.runs if run.setting.num_spec_tokens == LENGTHS[2]]
    shown = [row for _, rows in sections(LENGTHS[2]) for row in rows if row.name in STRICT_ROWS]
    head = ["", *(run.setting.label for run in runs)]
    yield Table(head=head, rows=compared(shown, runs, runs[0])).as_markdown()
    yield "**Against K:**\n"
    yield lengths_table(document.lengths.runs).as_markdown()
    yield f"**Acceptance lengths by prompts**, K = {FEW[0]}:\n"
    yield datasets_table(document.datasets).as_markdown()
    yield f"**Set rates**, K = {FEW[0]}, outputs of {document.synthetic.load.output_len} tokens:\n"
    yield synthetic_table(document.synthetic.runs).as_markdown()


def lengths_table(runs: Sequence[BenchRun]) -> Table:
    """Speed and acceptance at every K."""
    speeds = [run.figures.tokens_per_cpu_second or 0.0 for run in runs]
    rows = []
    for run, speed in zip(runs, speeds, strict=True):
        acceptance, length = run.figures.acceptance, run.setting.num_spec_tokens
        accepted = (
            f"{100 * acceptance.acceptance_rate:.1f}",
            f"{acceptance.acceptance_length:.2f}",
        )
        cells = [run.setting.policy, str(length), f"{speed:.1f}", f"{speed / speeds[0]:.2f}"]
        rows.append([*cells, *(accepted if length else ("–", "–"))])
    head = ["policy", "K", "tokens per CPU second", "of plain", "acceptance rate (%)"]
    return Table(head=[*head, "acceptance length"], rows=rows)


def datasets_table(measured: Mapping[str, BenchResults]) -> Table:
    """Acceptance lengths by set of prompts."""
    rows = [
        [name, *(f"{run.figures.acceptance.acceptance_length:.2f}" for run in results.runs)]
        for name, results in measured.items()
    ]
    return Table(head=["prompts", *POLICY_NAMES], rows=rows)


def synthetic_table(runs: Sequence[BenchRun]) -> Table:
    """Set rates and what came out, the mean and each position."""
    rows = []
    for run, rate in zip(runs, SET_RATES, strict=True):
        acceptance = run.figures.acceptance
        wanted = Synthetic.from_acceptance_rate(rate, FEW[0]).rates
        error = standard_error(wanted, acceptance.num_drafts)
        cells = [rate, acceptance.acceptance_rate, error]
        by_place = (wanted, acceptance.acceptance_rate_per_pos)
        shown = (" ".join(f"{100 * one:.2f}" for one in rates) for rates in by_place)
        rows.append(
            [*(f"{100 * cell:.2f}" for cell in cells), f"{acceptance.num_drafts:,}", *shown]
        )
    head = ["set rate (%)", "measured (%)", "standard error", "drafts"]
    return Table(head=[*head, "set per position (%)", "measured (%)"], rows=rows)


def standard_error(rates: Sequence[float], num_drafts: int) -> float:
    """Of the mean rate: the spread of the number accepted, which exceeds i with rates[i]."""
    mean, square = sum(rates), sum((2 * place + 1) * rate for place, rate in enumerate(rates))
    return math.sqrt(max(square - mean**2, 0.0) / num_drafts) / len(rates)


def draw(document: Document, folder: Path) -> None:
    """Acceptance per position, and throughput against K."""
    runs = document.lengths.runs
    drafting = [run for run in runs if run.setting.num_spec_tokens]
    save(draw_acceptance, drafting, folder / f"{NAME}-acceptance.svg")
    save(partial(draw_throughput, cpu_time=True), runs, folder / f"{NAME}-throughput.svg")


@click.command()
@click.option("--prompts", "files", type=(str, _FILE), multiple=True, help="NAME FILE.jsonl")
@click.option("--num-requests", type=int, default=24, show_default=True)
@click.option("--output-len", type=int, default=48, show_default=True)
@click.option("--max-concurrency", type=int, default=8, show_default=True)
@click.option("--read", is_flag=True, help="Measure nothing.")
@click.option("--docs", type=click.Path(path_type=Path), default=Path("docs"), show_default=True)
def main(files: tuple[tuple[str, Path], ...], read: bool, docs: Path, **amount: Any) -> None:
    """Measure the bundled pair, and write DOCS/data and DOCS/figures."""
    record = docs / "data" / f"{NAME}.json"
    if not read:
        pair = load_pair(ModelsConfig(), DrafterConfig())
        write_record(record, measure(pair, Load(**amount, ignore_eos=True), dict(files)))
    document = read_record(record, Document, "lab.benchmark_page")
    write_file(record.with_suffix(".md"), as_markdown(document))
    (docs / "figures").mkdir(exist_ok=True)
    draw(document, docs / "figures")


if __name__ == "__main__":
    main()
