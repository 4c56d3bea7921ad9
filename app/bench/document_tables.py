"""The tables of docs/benchmark.md, from what was measured; this module refuses to measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.policies import Synthetic
from .markdown import side_by_side, table
from .plots import draw_acceptance, draw_throughput, save
from .results import BenchResults, BenchRun

if TYPE_CHECKING:
    from .document import Document

SERVING = (
    "output token throughput (tok/s)",
    "mean TTFT (ms)",
    "mean TPOT (ms)",
    "P99 TPOT (ms)",
    "median ITL (ms)",
)
# A CPU is rarely alone: its figures count processor time, and leave out latencies.
SERVING_ON_CPU = ("output tokens per CPU second",)
ACCEPTED = (
    "acceptance rate (%)",
    "acceptance length",
)


def write_tables(document: Document, name: str, out: Path) -> None:
    """One Markdown file per table, and the pictures, all named after the pair."""
    tables = {
        "where": where(document),
        "datasets": datasets(document.datasets),
        "strict": against_strict(document.lengths),
        "lengths": lengths(document.lengths),
        "greedy": greedy(document.greedy),
        "synthetic": synthetic(document.synthetic),
    }
    for part, text in tables.items():
        (out / f"benchmark-{name}-{part}.md").write_text(text, encoding="utf-8")
    figures = out.parent / "figures"
    figures.mkdir(exist_ok=True)
    runs = document.lengths.runs
    drafting = [run for run in runs if run.setting.num_spec_tokens]
    save(draw_acceptance, drafting, figures / f"benchmark-{name}-acceptance.svg")
    draw = partial(draw_throughput, cpu_time=_on_cpu(document.lengths))
    save(draw, runs, figures / f"benchmark-{name}-throughput.svg")


def where(document: Document) -> str:
    """The machine, the date and the loads: of speeds, and of acceptance where others served."""
    results = document.lengths
    machine, load, setting = results.machine, results.load, results.runs[0].setting
    accepted, rates = next(iter(document.datasets.values())).load, document.synthetic.load
    others = ""
    if accepted.output_len != load.output_len:
        others = (
            f"; {accepted.num_requests} of {accepted.output_len} where only acceptance is shown, "
            f"{rates.num_requests} of {rates.output_len} for set rates"
        )
    return (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}, backend "
        f"{setting.backend}; {load.num_requests} requests of "
        f"{load.output_len} tokens for each figure, at most {load.max_concurrency} at a time"
        f"{others}.\n"
    )


def datasets(measured: Mapping[str, BenchResults]) -> str:
    """Acceptance lengths by set of prompts."""
    head = ["prompts", *(run.setting.policy for run in next(iter(measured.values())).runs)]
    rows = [
        [name, *(f"{run.figures.acceptance.acceptance_length:.2f}" for run in results.runs)]
        for name, results in measured.items()
    ]
    return table(head, rows)


def against_strict(results: BenchResults) -> str:
    """Policies at one K, compared with strict."""
    known = sorted({run.setting.num_spec_tokens for run in results.runs if _drafts(run)})
    # The middle one of those measured.
    length = known[len(known) // 2]
    runs = [run for run in results.runs if run.setting.num_spec_tokens == length]
    places = tuple(f"position {place}" for place in range(length))
    serving = SERVING_ON_CPU if _on_cpu(results) else SERVING
    return side_by_side(runs, serving + ACCEPTED + places)


def _on_cpu(results: BenchResults) -> bool:
    return results.machine["device"].startswith("CPU")


def _speed(run: BenchRun, *, cpu_time: bool) -> float:
    per_cpu_second = run.figures.tokens_per_cpu_second
    return per_cpu_second if cpu_time and per_cpu_second else run.figures.output_throughput


def _unit(*, cpu_time: bool) -> str:
    return "tokens per CPU second" if cpu_time else "tok/s"


def _drafts(run: BenchRun) -> bool:
    return run.setting.num_spec_tokens > 0


def lengths(results: BenchResults) -> str:
    """Throughput and acceptance length at every K."""
    cpu_time = _on_cpu(results)
    plain = next(run for run in results.runs if not _drafts(run))
    head = ["policy", "K", *_speed_head(cpu_time=cpu_time), "acceptance rate (%)"]
    rows = [["plain", "0", *_speed_cells(plain, plain, cpu_time=cpu_time), "–", "–"]]
    for run in filter(_drafts, results.runs):
        acceptance = run.figures.acceptance
        rows.append(
            [
                run.setting.policy,
                str(run.setting.num_spec_tokens),
                *_speed_cells(run, plain, cpu_time=cpu_time),
                f"{100 * acceptance.acceptance_rate:.1f}",
                f"{acceptance.acceptance_length:.2f}",
            ]
        )
    return table([*head, "acceptance length"], rows)


def _speed_head(*, cpu_time: bool) -> list[str]:
    whole = [_unit(cpu_time=cpu_time), "of plain"]
    return whole if cpu_time else [*whole, "median ITL (ms)", "of plain at that pace"]


def _speed_cells(run: BenchRun, plain: BenchRun, *, cpu_time: bool) -> list[str]:
    """Of the whole run and, unless processor time counts, at the pace of its median step."""
    speed = _speed(run, cpu_time=cpu_time)
    cells = [f"{speed:.1f}", f"{speed / _speed(plain, cpu_time=cpu_time):.2f}"]
    if cpu_time:
        return cells
    return [*cells, f"{run.figures.itl.median:.3f}", f"{_pace(run) / _pace(plain):.2f}"]


def _pace(run: BenchRun) -> float:
    """Tokens that a request gains per millisecond, if all its steps took as long as the median."""
    per_step = run.figures.acceptance.acceptance_length if _drafts(run) else 1.0
    return per_step / run.figures.itl.median


def greedy(measured: Mapping[str, BenchResults]) -> str:
    """Acceptance of greedy and of sampled requests, alone and mixed."""
    head = ["policy"]
    for name in measured:
        head += [f"{name}: greedy", "sampled"]
    policies = [run.setting.policy for run in next(iter(measured.values())).runs]
    rows = [
        [policy, *(cell for one in measured.values() for cell in _greedy_cells(one, place))]
        for place, policy in enumerate(policies)
    ]
    return table(head, rows)


def _greedy_cells(results: BenchResults, place: int) -> list[str]:
    run = results.runs[place]
    by_kind = run.figures.acceptance_by_category
    if not by_kind.keys() & {"greedy", "sampled"}:
        by_kind = {"sampled": run.figures.acceptance}
    shown = [by_kind.get(kind) for kind in ("greedy", "sampled")]
    return ["–" if one is None else f"{one.acceptance_length:.2f}" for one in shown]


def synthetic(results: BenchResults) -> str:
    """Set rates and what came out, the mean and each position."""
    head = [
        "set rate (%)",
        "measured (%)",
        "standard error",
        "drafts",
        "set per position (%)",
        "measured (%)",
    ]
    return table(head, [_synthetic_row(run) for run in results.runs])


def _synthetic_row(run: BenchRun) -> list[str]:
    rate = float(run.setting.policy.split()[1])
    acceptance = run.figures.acceptance
    rates = Synthetic.from_acceptance_rate(rate, run.setting.num_spec_tokens).rates
    return [
        f"{100 * rate:.0f}",
        f"{100 * acceptance.acceptance_rate:.2f}",
        f"{100 * _standard_error(rates, acceptance.num_drafts):.2f}",
        f"{acceptance.num_drafts:,}",
        " ".join(f"{100 * one:.2f}" for one in rates),
        " ".join(f"{100 * one:.2f}" for one in acceptance.acceptance_rate_per_pos),
    ]


def _standard_error(rates: Sequence[float], num_drafts: int) -> float:
    """Of the mean rate: the spread of the number accepted, which exceeds i with rates[i]."""
    mean = sum(rates)
    square = sum((2 * place + 1) * rate for place, rate in enumerate(rates))
    return math.sqrt(max(square - mean**2, 0.0) / num_drafts) / len(rates)
